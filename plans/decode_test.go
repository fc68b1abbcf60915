package plans_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/plans"
)

func TestTheStoredFormIsWhatQueriesRead(t *testing.T) {
	t.Parallel()
	data, err := json.Marshal(load(t))
	require.NoError(t, err)
	var stored struct {
		Format int
		Plans  map[string]struct {
			Position int
			Quota    map[string]json.RawMessage
		}
	}
	require.NoError(t, json.Unmarshal(data, &stored))
	require.Equal(t, 1, stored.Format)
	require.Equal(t, 1, stored.Plans["pro"].Position)
	require.JSONEq(t, `{"position":0,"included":1000000,"on_exceeded":"bill_overage","max":5000000,"price":"0.4","price_per":1000,
		"unit_amount_decimal":"0.04","warn_at":[80,100],"enforce":"leases","per":"subscription","when_database_away":"continue"}`,
		string(stored.Plans["pro"].Quota["events"]))
	require.JSONEq(t, `{"position":0,"included":20000000,"on_exceeded":"bill_overage","max":null,"price":"","price_per":0,
		"unit_amount_decimal":"","warn_at":[80,100],"enforce":"leases","per":"subscription","when_database_away":"continue"}`,
		string(stored.Plans["scale"].Quota["events"]))
}

// A row that somebody edited is not trusted: it is validated like a file.
func TestAnEditedCatalogIsRefused(t *testing.T) {
	t.Parallel()
	data, err := json.Marshal(load(t))
	require.NoError(t, err)
	for name, tc := range map[string]struct{ old, new, message string }{
		"newer format":       {`"format":1`, `"format":2`, "its format is 2, this program reads 1"},
		"no format":          {`"format":1,`, ``, "its format is 0"},
		"negative count":     {`"included":10000,`, `"included":-1,`, "-1 is negative"},
		"fraction":           {`"included":10000,`, `"included":1.5,`, "1.5"},
		"float":              {`"included":10000,`, `"included":1e4,`, "1e4"},
		"overflow":           {`"included":10000,`, `"included":9223372036854775808,`, "9223372036854775808"},
		"too many":           {`"included":10000,`, `"included":9223372036854775807,`, "plans.free.quota.events.included: 9223372036854775807"},
		"unknown word":       {`"late":"hold"`, `"late":"maybe"`, `unknown word "maybe"`},
		"missing word":       {`"late":"hold",`, ``, `unknown word ""`},
		"two meanings":       {`"on_exceeded":"block","max":0`, `"on_exceeded":"block","max":5`, "plans.free.quota.events.max"},
		"unit price":         {`"unit_amount_decimal":"0.04"`, `"unit_amount_decimal":"0.4"`, `"0.4" is not the price of one unit, 0.04`},
		"price":              {`"price":"0.4"`, `"price":"4e-1"`, "is not a price"},
		"window":             {`"window_seconds":60`, `"window_seconds":9223372036854775807`, "seconds are out of range"},
		"default plan":       {`"default_plan":"free"`, `"default_plan":"pro"`, "plans.pro.prices: the default plan"},
		"default bills":      {`"default_plan":"free"`, `"default_plan":"scale"`, "plans.scale.on_exceeded: the default plan"},
		"feature":            {`"quota":{"events"`, `"quota":{"Events"`, `unknown feature "Events"`},
		"meter":              {`"meter":"weir_events_overage"`, `"meter":""`, "has no meter"},
		"price of two plans": {`["pro_monthly"]`, `["scale_monthly"]`, "already selects the plan"},
		"thresholds":         {`"warn_at":[80,100]`, `"warn_at":[100,80]`, "80 comes after 100"},
		"burst":              {`"burst":0`, `"burst":9`, "has no effect with"},
		"status":             {`"quota_status":402`, `"quota_status":429`, "429 is neither"},
		"line break":         {`"upgrade_url":""`, `"upgrade_url":"https://a.example/\r\nb: c"`, "not a web address"},
		"cut off":            {`}}}}}`, ``, "unexpected end"},
		"two values":         {`"format"`, `"x":0} {"format"`, "after top-level value"},
		"future shape":       {`"format":1,"currency":"usd"`, `"format":2,"currency":["usd"]`, "its format is 2"},
		"something after it": {`}}}}}`, `}}}}} {}`, "after top-level value"},
		"not JSON":           {`{"format"`, `format`, "decode plan catalog"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			edited := strings.Replace(string(data), tc.old, tc.new, 1)
			require.NotEqual(t, string(data), edited)
			c, err := plans.Decode([]byte(edited))
			require.ErrorContains(t, err, tc.message)
			require.Nil(t, c)
			require.NotContains(t, err.Error(), "\r")
		})
	}
}

func TestAnOversizedCatalogIsRefused(t *testing.T) {
	t.Parallel()
	_, err := plans.Decode(make([]byte, 32<<20+1))
	require.ErrorContains(t, err, "more than 33554432")
}

// A newer worker may add keys within a format; an older node goes on.
func TestUnknownKeysOfANewerProgramAreIgnored(t *testing.T) {
	t.Parallel()
	c := load(t)
	data, err := json.Marshal(c)
	require.NoError(t, err)
	newer := strings.Replace(string(data), `"late":"hold"`, `"late":"hold","later":{"a":[1]}`, 1)
	old, err := plans.Decode([]byte(newer))
	require.NoError(t, err)
	require.Equal(t, c.Hash(), old.Hash())
}

func TestAZeroCatalogIsNotEncoded(t *testing.T) {
	t.Parallel()
	_, err := json.Marshal(new(plans.Catalog))
	require.ErrorContains(t, err, "was not made by Load, Parse or Decode")
}
