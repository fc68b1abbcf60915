// Package enforcer decides, in the API server's own memory, whether the next unit may be spent, and counts it.
//
// An Enforcer holds leases: units that the database has set aside for this process. A call that a lease can answer is
// one compare-and-swap; it takes no lock, makes no allocation and no I/O. Caps are exact over any number of processes,
// and what was admitted survives the process (see docs/guarantees.md).
//
//	e, err := enforcer.New(pool, &enforcer.Config{})
//	err = e.Start(ctx)
//	d, err := e.Consume(ctx, "acme", "events", 1)
//	if !d.Allowed { … }
//
// A refusal is a Decision, not an error. Errors are for calls that can't be decided: bad arguments, or an enforcer
// that is not running.
package enforcer
