// Package admin serves the pages of those who run Weir: how everything stands and what waits for a person, every
// account's story, the books of a month, the nodes, and the actions that change something.
//
// Pages are rendered here and need no script. Whoever may see one may do everything, so each request shows a token, a
// session that was opened with it, or comes from a trusted proxy that says who it is; each action has an actor and a
// reason. The package has no SQL: what is shown is read by billing and usage.
package admin
