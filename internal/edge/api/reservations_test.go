package api

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Work that takes long is settled though many short reservations came and went meanwhile.
func TestAnOpenReservationIsNotForgottenForTheNumberOfClosedOnes(t *testing.T) {
	t.Parallel()
	rs, now := newReservations(), time.Now()
	long := rs.add(nil, now)
	for range 2 * maxKept {
		r := rs.add(nil, now.Add(time.Second))
		r.mu.Lock()
		r.state = "settled"
		r.mu.Unlock()
	}
	require.Same(t, long, rs.find(long.id))
	require.LessOrEqual(t, len(rs.byID), maxKept)
	require.Len(t, rs.order, len(rs.byID))

	rs.add(nil, now.Add(keptFor+2*time.Second))
	require.Nil(t, rs.find(long.id), "its time is over")
}

// Where none of them is closed the bound holds all the same.
func TestOpenReservationsAreBounded(t *testing.T) {
	t.Parallel()
	rs, now := newReservations(), time.Now()
	for range maxKept + 1000 {
		rs.add(nil, now)
	}
	require.LessOrEqual(t, len(rs.byID), maxKept)
	require.Len(t, rs.order, len(rs.byID))
}
