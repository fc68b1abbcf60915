// Package ratelimit limits how often a caller may call, within one process and in memory.
//
// A [Limiter] keeps one small state per (caller, key), a [Rule] says how it counts. Time is an argument: nanoseconds
// of a monotonic clock, so that a test or a coarse clock can stand in for the real one and no call reads a clock.
//
// # What is promised
//
// Every decision is one compare-and-swap on the words of the key, whatever the number of callers: where N units are
// left, exactly N of any number of concurrent single-unit calls pass. A refused call counts nothing, and no call is
// refused because of another one that was itself refused. All arithmetic is in integers. With L units per window W:
//
//   - [FixedWindow]: at most L in each window [kW, (k+1)W) of the clock; up to 2L around an edge.
//   - [SlidingWindow]: units of this window, plus those of the one before weighted by the part of it that still lies
//     within W of now, are at most L. Exact when calls come evenly; around an edge a burst can't be repeated.
//   - [TokenBucket]: in any span t at most Burst + ⌊t·L/W⌋, counted on a clock that is rounded down by less than a
//     nanosecond (by 2^-30 of a unit for a Burst that takes years to refill; not at all where L/W is a simple
//     fraction, as in every plan that people write).
//
// # Nodes
//
// A limit is shared: each of N live nodes admits max(1, ⌈L/N⌉) of it (nothing where L is 0). Rounding up keeps every
// caller's share whole whichever node answers, so that the cluster admits at most L + N − 1, and never less than L.
// When N is greater than L each node still admits one.
//
// # Changes
//
// Another rule for a key, or another number of nodes, applies with the next call and gives nobody a fresh allowance.
// Between windows of one length the units in use stay in use; a bucket stays as full as it was, and fills at the new
// rate; between algorithms or lengths, what is in use counts in the present window. What had already left a shorter
// window is not known to a longer one.
//
// # Memory
//
// Keys are kept as 64-bit hashes under seeds that are random per Limiter: no string is retained, a key costs the same
// whatever its length (some 80 bytes), and nobody can aim for a collision. Two of a million keys share a state with
// a probability of 3·10^-8; then they share a limit. A state that is back at its full allowance is no different from
// none, and [Limiter.Sweep] forgets it. See [New] for what happens when there is no room.
package ratelimit
