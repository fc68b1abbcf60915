// Package plans reads the plan file: what each plan grants, limits and charges.
//
// Load and Parse validate everything and report every fault at once, with its place and a
// suggestion. The result is a Catalog: immutable, safe for concurrent use, with every default
// filled in. Its JSON form is what the worker publishes to the database, and Decode reads it back.
//
// Counts are whole units or unlimited, never a magic number; money is decimal, never a float.
package plans
