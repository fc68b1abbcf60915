package billing

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

type fixedClock struct{ at time.Time }

func (c fixedClock) Now() time.Time { return c.at }

// containsStamp reports whether a header holds the digits of an instant, sign and leading zeros aside.
func containsStamp(header string, unix int64) bool {
	return strings.Contains(header, strconv.FormatInt(unix, 10))
}

// What is taken for an event is JSON in UTF-8 that names itself, and what is read from it can be stored.
func FuzzEventsThatAreTakenCanBeStored(f *testing.F) {
	f.Add([]byte(`{"id":"evt_1","type":"invoice.created","livemode":false,"api_version":"2024-06-20","created":1,"data":{"object":{"id":"in_1","customer":"cus_1"}}}`))
	f.Add([]byte(`{"id":"evt_2","object":"v2.core.event","type":"v1.billing.meter.error_report_triggered","created":"2026-01-01T00:00:00Z","related_object":{"id":"mtr_1"}}`))
	f.Add([]byte(`{"id":"evt\u0000","type":"x","data":{"object":[]}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		b := &Biller{}
		e, err := b.parseEvent(body)
		if err != nil {
			return
		}
		require.True(t, json.Valid(body))
		h := e.hints()
		for _, text := range []string{e.ID, e.Type, e.APIVersion, h.customer, h.object, h.invoice, h.reference} {
			require.True(t, utf8.ValidString(text), "%q", text)
			require.NotContains(t, text, "\x00", "PostgreSQL stores no NUL")
		}
	})
}

// A signature is only as young as its timestamps say.
func FuzzSignaturesHaveAnAge(f *testing.F) {
	now := time.Unix(1_800_000_000, 0)
	f.Add("t=1800000000,v1=abc")
	f.Add("v1=abc, t=1799999000")
	f.Add("t=,t=1800000000")
	f.Fuzz(func(t *testing.T, header string) {
		b := &Biller{cfg: Config{Clock: fixedClock{now}}}
		if b.checkAge(header) != nil {
			return
		}
		found := false
		for d := -signatureAge / time.Second; d <= signatureAge/time.Second; d++ {
			found = found || containsStamp(header, now.Unix()+int64(d))
		}
		require.True(t, found, "%q was taken", header)
	})
}
