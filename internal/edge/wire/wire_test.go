package wire_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/edge/wire"
)

var shape = wire.Shape{
	Allowed:  wire.Account | wire.Feature | wire.Units | wire.Rate | wire.Caller | wire.Key,
	Required: wire.Account | wire.Feature, Most: 3,
}

func TestCallsAreRead(t *testing.T) {
	t.Parallel()
	calls, list, err := wire.Parse(nil, []byte(` {"account" : "acme\u00e9\n", "units":-12,`+"\n"+`"feature":"日本","rate":false,"caller":"k","idempotency_key":"i"} `), shape)
	require.NoError(t, err)
	require.False(t, list)
	require.Equal(t, []wire.Call{{Has: shape.Allowed, Account: "acmeé\n", Feature: "日本", Units: -12, Caller: "k", Key: "i"}}, calls)

	calls, list, err = wire.Parse(nil, []byte(`[{"account":"a","feature":"f"},{"feature":"g","account":"b","units":9223372036854775807}]`), shape)
	require.NoError(t, err)
	require.True(t, list)
	require.Equal(t, []wire.Call{
		{Has: wire.Account | wire.Feature, Account: "a", Feature: "f", Units: 1, Rate: true},
		{Has: wire.Account | wire.Feature | wire.Units, Account: "b", Feature: "g", Units: 9223372036854775807, Rate: true},
	}, calls)
}

func TestAFaultIsNamedWithItsPlace(t *testing.T) {
	t.Parallel()
	one := `{"account":"a","feature":"f"}`
	for body, want := range map[string]string{
		"":                              "line 1, column 1: the body is empty: send a JSON object",
		"\ufeff{}":                      "line 1, column 1: the body begins with a byte order mark: send it without",
		"null":                          "line 1, column 1: the body is no JSON object",
		"{":                             `line 1, column 2: a member's name in quotes is expected`,
		"{}":                            `line 1, column 3: the member "account" is missing`,
		`{"account":"a"}`:               `line 1, column 16: the member "feature" is missing`,
		one + "\n{}":                    "line 2, column 1: something follows the JSON value: send one",
		`{"account":"a",}`:              `line 1, column 16: a member's name in quotes is expected`,
		`{"account" "a"}`:               `line 1, column 12: a colon is missing after "account"`,
		`{"account":"a`:                 `line 1, column 14: a string does not end`,
		"{\"account\":\"a\n\"}":         `line 1, column 14: a control character stands in a string`,
		`{"account":1}`:                 `line 1, column 12: "account" must be text`,
		`{"account":null}`:              `line 1, column 12: "account" must be text`,
		`{"account":"\q"}`:              `line 1, column 12: "account" has an escape that JSON does not know`,
		`{"account":"\ud800"}`:          `line 1, column 12: "account" holds half a surrogate pair or U+FFFD`,
		`{"Account":"a"}`:               `line 1, column 2: the member "Account" is unknown: this route takes account, feature, units, rate, caller, idempotency_key`,
		`{"account":"a","account":"b"}`: `line 1, column 16: the member "account" is there twice`,
		`{"units":1.5}`:                 `line 1, column 10: "units" is 1.5: use a whole number of at most 9223372036854775807`,
		`{"units":1e3}`:                 `line 1, column 10: "units" is 1e3: use a whole number of at most 9223372036854775807`,
		`{"units":007}`:                 `line 1, column 10: "units" is 007: use a whole number of at most 9223372036854775807`,
		`{"units":9223372036854775808}`: `line 1, column 10: "units" is 9223372036854775808: use a whole number of at most 9223372036854775807`,
		`{"units":"1"}`:                 `line 1, column 10: "units" must be a number`,
		`{"rate":1}`:                    `line 1, column 9: "rate" must be true or false`,
		`{"rate":true "units":1}`:       `line 1, column 14: a comma or a closing brace is missing`,
		`[]`:                            `call 1, line 1, column 2: the list is empty: send 1 to 3 calls`,
		`[1]`:                           `call 1, line 1, column 2: a list holds JSON objects`,
		`[` + one + `,{"x":1}]`:         `call 2, line 1, column 33: the member "x" is unknown: this route takes account, feature, units, rate, caller, idempotency_key`,
		`[` + one + one + `]`:           `call 2, line 1, column 31: a comma or the end of the list is missing`,
		"\xff":                          "the body is not UTF-8",
	} {
		_, _, err := wire.Parse(nil, []byte(body), shape)
		var fault *wire.Error
		require.ErrorAs(t, err, &fault, body)
		require.Equal(t, want, err.Error(), body)
	}
	_, _, err := wire.Parse(nil, []byte("["+strings.Repeat(one+",", 3)+one+"]"), shape)
	require.EqualError(t, err, "call 4, line 1, column 92: the list has more than 3 calls: send several requests")
	_, _, err = wire.Parse(nil, []byte("["+one+"]"), wire.Shape{Allowed: shape.Allowed})
	require.EqualError(t, err, "line 1, column 1: this route takes one JSON object, no list")
	_, _, err = wire.Parse(nil, []byte(one), wire.Shape{Allowed: wire.Units})
	require.EqualError(t, err, `line 1, column 2: the member "account" is unknown: this route takes units`)
}

// What is accepted means what encoding/json takes it for.
func FuzzAcceptedBodiesMeanWhatJSONMeans(f *testing.F) {
	for _, s := range []string{`{"account":"a","feature":"f","units":1}`, `[{"account":"\u00e9\ud83d\ude00","feature":"f","rate":false}]`, `{"units":-0}`, `{"a`, `[{]`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		calls, list, err := wire.Parse(nil, body, shape)
		if err != nil {
			var fault *wire.Error
			if !errors.As(err, &fault) {
				t.Fatalf("%T", err)
			}
			for _, c := range fmt.Sprint(err) {
				if c < ' ' {
					t.Fatalf("control character in %q", err)
				}
			}
			return
		}
		type call struct {
			Account, Feature, Caller string
			Units                    *int64
			Rate                     *bool
			Key                      string `json:"idempotency_key"`
		}
		var want []call
		if list {
			err = json.Unmarshal(body, &want)
		} else {
			want = make([]call, 1)
			err = json.Unmarshal(body, &want[0])
		}
		if err != nil || len(want) != len(calls) {
			t.Fatalf("accepted %q: %v", body, err)
		}
		for i, c := range calls {
			w := want[i]
			units, rate := int64(1), true
			if w.Units != nil {
				units = *w.Units
			}
			if w.Rate != nil {
				rate = *w.Rate
			}
			if c.Account != w.Account || c.Feature != w.Feature || c.Caller != w.Caller || c.Key != w.Key || c.Units != units || c.Rate != rate {
				t.Fatalf("%q: %+v, want %+v", body, c, w)
			}
		}
	})
}
