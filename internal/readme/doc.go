// Package readme holds the tests of what README.md promises.
package readme
