// Package licences holds the test that docs/licences.md lists every module that anything here is built from, and that
// each may be used: permissive licences and the MPL 2.0, and for tools, which are run and never linked, the GPL.
//
//	make licences
//
// writes the list anew from the licence files of the module cache.
package licences
