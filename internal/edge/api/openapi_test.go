package api_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/edge/wire"
)

func TestTheDescriptionNamesEveryRouteAndNoOther(t *testing.T) {
	t.Parallel()
	h := serve(t, newEnforcer(t, testPlans))
	require.Equal(t, "3.1.0", h.schema.doc["openapi"])
	var served, described []string
	for _, r := range h.api.Routes() {
		method, path := r.Method, r.Path
		if method == "" { // every method is answered alike; the description tells of one
			method = http.MethodGet
		}
		if strings.HasSuffix(path, "/") {
			path += "{path}"
		}
		served = append(served, method+" "+path)
		security, has := h.schema.at(t, "paths", path, strings.ToLower(method))["security"].([]any)
		require.Equal(t, r.Open && r.Path != "", has && len(security) == 0, "whether %s needs a token", path)
	}
	for path, methods := range h.schema.at(t, "paths") {
		for method := range methods.(map[string]any) {
			described = append(described, strings.ToUpper(method)+" "+path)
		}
	}
	slices.Sort(served)
	slices.Sort(described)
	require.Equal(t, served, described)
}

func TestEveryReferenceOfTheDescriptionLeadsSomewhere(t *testing.T) {
	t.Parallel()
	h := serve(t, newEnforcer(t, testPlans))
	var walk func(node any)
	walk = func(node any) {
		switch n := node.(type) {
		case map[string]any:
			if ref, ok := n["$ref"].(string); ok {
				h.schema.at(t, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
			}
			for _, v := range n {
				walk(v)
			}
		case []any:
			for _, v := range n {
				walk(v)
			}
		}
	}
	walk(h.schema.doc)
	for name := range h.schema.at(t, "components", "schemas") {
		h.schema.compile(t, "/components/schemas/"+name)
	}
}

// What the description calls a valid body is what the parser takes, as far as their shapes go.
func TestTheParserTakesWhatTheDescriptionDescribes(t *testing.T) {
	t.Parallel()
	h := serve(t, newEnforcer(t, testPlans))
	call := h.schema.compile(t, "/components/schemas/Call")
	for body, valid := range map[string]bool{
		`{"account":"a","feature":"f"}`:                          true,
		`{"account":"a","feature":"f","units":0}`:                true,
		`{"account":"a","feature":"f","rate":false}`:             true,
		`{"account":"a","feature":"f","caller":"k"}`:             true,
		`{"account":"a","feature":"f","idempotency_key":"k"}`:    true,
		`{"account":"a"}`:                                        false,
		`{"feature":"f"}`:                                        false,
		`{"account":"a","feature":"f","units":1.5}`:              false,
		`{"account":"a","feature":"f","units":"1"}`:              false,
		`{"account":"a","feature":"f","units":null}`:             false,
		`{"account":1,"feature":"f"}`:                            false,
		`{"account":"a","feature":"f","rate":"false"}`:           false,
		`{"account":"a","feature":"f","Units":1}`:                false,
		`{"account":"a","feature":"f","price":{"amount":"0.4"}}`: false,
	} {
		_, _, err := wire.Parse(nil, []byte(body), wire.Shape{
			Allowed:  wire.Account | wire.Feature | wire.Units | wire.Rate | wire.Caller | wire.Key,
			Required: wire.Account | wire.Feature,
		})
		require.Equal(t, valid, err == nil, "%s: %v", body, err)
		value, err := jsonschema.UnmarshalJSON(strings.NewReader(body))
		require.NoError(t, err)
		require.Equal(t, valid, call.Validate(value) == nil, body)
	}
}
