// Package books is what people read of billing: how an account and a month stand, every number with the rows that it
// consists of, what is open and since when. It reads, in snapshots, and changes nothing; what is done about what it
// shows are the actions of package billing.
package books
