package web_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/usage"
)

// The host says on whose behalf it changes something; what the audit log can't keep changes nothing.
func TestTheHostSaysWhoAsksAndWhy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.subscribe("acme", "pro")
	put := func(headers ...string) answer {
		w.Helper()
		return w.do(http.MethodPut, "/v1/accounts/acme/contact", nil, append([]string{"Authorization", "Bearer " + adminToken}, headers...)...)
	}
	require.Equal(t, http.StatusNoContent, put().status)
	require.Equal(t, http.StatusNoContent, put("Weir-Actor", "ann@example.com", "Weir-Reason", "ticket 7").status)
	for _, bad := range [][]string{
		{"Weir-Actor", strings.Repeat("a", usage.MaxActorBytes+1)}, {"Weir-Actor", "ann\xff"}, {"Weir-Reason", strings.Repeat("a", usage.MaxReasonBytes+1)},
	} {
		a := put(bad...)
		require.Equal(t, http.StatusBadRequest, a.status, bad[0])
		require.Contains(t, a.body, "Weir-Actor takes")
	}
	all, err := usage.AuditLog(t.Context(), w.db, usage.AuditFilter{Most: 10})
	require.NoError(t, err)
	require.Len(t, all, 2)
	require.Equal(t, []string{"ann@example.com", "ticket 7", "host", "the host sets it"}, []string{all[0].Actor, all[0].Reason, all[1].Actor, all[1].Reason})
}
