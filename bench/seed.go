//go:build weirbench

package main

import "github.com/weirhq/weir/enforcer"

// seed makes a node know accounts without a first contact for each.
func seed(w *world, e *enforcer.Enforcer, feature string, names []string) error {
	return e.Seed(w.ctx, "acme", feature, names, 1_000_000)
}
