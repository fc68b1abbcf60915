// Package postgres runs private PostgreSQL servers for the demo and for tests.
//
// A server made by [Start] belongs to the process that started it. It has its
// own folder, listens on a Unix socket that only this user can reach (and on
// 127.0.0.1 with a password if asked to), and is stopped and its folder removed
// when the process ends, however it ends. A server made by [Join] belongs to
// all processes of this user that joined it, and goes when the last one has
// gone.
//
// Neither relies on the process being able to clean up after itself. Each
// server has a keeper, a few lines of shell that wait for the end of a pipe
// whose writing ends are held by the owners and by nobody else; the kernel
// closes them when an owner dies, by kill -9 too. Should a keeper be killed as
// well, the next Start finds the folder by its name and the locks in it
// unlocked, and removes it.
//
// PostgreSQL refuses to run as root. Under root the server runs as the user
// "postgres", or as "nobody" where there is none.
//
// The package works on Linux and macOS.
package postgres
