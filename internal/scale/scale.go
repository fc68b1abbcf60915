// Package scale holds the test that docs/scale.md computes with what a database really writes.
package scale
