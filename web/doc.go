// Package web serves what customers see: their usage page with its live numbers and spending caps, the same numbers as
// JSON for them and for the host, and the pricing table of the plan file.
//
// A page is one snapshot: every number on it is of the instant that it names. Pages need no script, load nothing from
// elsewhere and set no cookie; what a link's token names is all that its holder sees.
package web
