package billing_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/billing"
	"github.com/weirhq/weir/usage"
)

// Who was unmapped by a person stays so, whatever the metadata say, until somebody maps it again.
func TestMetadataDoNotMapAgainWhatAPersonUnmapped(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	customer, _ := w.subscribe("acme", "pro_monthly", "usage")
	w.soon()
	mapped := func() int64 { return w.number("SELECT count(*) FROM weir.customers WHERE account_id IS NOT NULL") }
	require.EqualValues(t, 1, mapped())
	by := usage.By{Actor: "ann", Way: usage.WayAdmin, Reason: "a wrong customer"}
	_, err := w.b.Do(t.Context(), &billing.UnmapCustomer{Account: "acme"}, by)
	require.NoError(t, err)
	w.exec("UPDATE weir.customers SET wanted = wanted + 1") // a webhook, or the sweep
	w.work()
	require.Zero(t, mapped())
	require.Contains(t, w.findings()["mapping_conflict"], "ann unmapped it")
	_, err = w.b.Do(t.Context(), &billing.MapCustomer{Account: "acme", Customer: customer}, by)
	require.NoError(t, err)
	w.work()
	require.EqualValues(t, 1, mapped())
}
