// Package billing is the only one that speaks Stripe: it reads subscriptions, reports overage as a chain of meter
// events, reads invoices back, and keeps the books that prove that every unit is on one invoice or visibly on none.
//
// A [Biller] does the work; what is due is read from rows and claimed in rows, so any number of processes may run one
// and any of them may die at any step. A webhook is a hint: it marks a customer or an invoice to be read, and nothing
// in its body is believed but what Stripe never changes (ids, client_reference_id).
//
// No transaction is open across a call to Stripe. The intent is stored first (a report with its identifier, value and
// stamp; an attempt that has begun), then the call is made, then its outcome is stored. The rules are in
// docs/billing.md and docs/plan-changes.md.
package billing
