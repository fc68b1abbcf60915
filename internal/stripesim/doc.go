// Package stripesim is a stateful simulator of the part of Stripe that usage
// billing touches: customers, prices, meters, meter events, subscriptions that
// renew, invoices that are drafted and finalized, signed webhooks, and the ways
// in which all of that goes wrong.
//
// A [Server] is an [net/http.Handler] that speaks Stripe's wire format, so the
// ordinary client (stripe-go with its own backend URL) talks to it unchanged:
//
//	sim := stripesim.New(stripesim.Config{})
//	url, stop, err := sim.Listen()
//	…
//	client.New(sim.APIKey(), stripe.NewBackendsWithConfig(&stripe.BackendConfig{URL: &url}))
//
// # Time
//
// Business time is a clock that the caller moves; nothing in the package starts
// a timer for it. With its own clock, [Server.Advance] moves it; with
// [Config.Clock], [Server.Tick] performs what has become due up to Clock.Now.
// Both work in chronological order: a trial ends, a period renews, a draft is
// made, its webhook is delivered (and its receiver may call the simulator back),
// the draft is finalized an hour later. Between two ticks the simulator is as
// late as Stripe may be: a subscription whose period is over still shows the
// old one.
//
// # Shapes
//
// An answer has the shape of the request's Stripe-Version header, a webhook that
// of its endpoint: before 2025-03-31.basil a subscription carries its period on
// top, from then on each item carries its own, and invoices and their lines name
// their subscription and price elsewhere.
//
// # Faults
//
// [Server.Faults] refuses, stalls, and takes a request and drops its answer; it
// also loses, repeats, holds and reorders webhooks, and rejects meter events
// after they were accepted. Tests read what happened with [Server.Calls],
// [Server.MeterEvents], [Server.Usage], [Server.Invoices] and
// [Server.Deliveries].
//
// What each behaviour rests on is listed in docs/stripe-simulator.md. All state
// is in memory, bounded as Config says, and safe for concurrent use.
package stripesim
