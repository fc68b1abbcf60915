package stripesim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
)

// encode writes the JSON of an answer: the few types that the package renders
// with, keys in order. It is several times faster than reflection, and renewals
// render a lot; any other type goes through encoding/json.
func encode(v any) ([]byte, error) {
	return appendJSON(make([]byte, 0, 1024), v)
}

func appendJSON(b []byte, v any) ([]byte, error) {
	switch v := v.(type) {
	case nil:
		return append(b, "null"...), nil
	case bool:
		return strconv.AppendBool(b, v), nil
	case int:
		return strconv.AppendInt(b, int64(v), 10), nil
	case int64:
		return strconv.AppendInt(b, v, 10), nil
	case string:
		return appendString(b, v)
	case version:
		return appendString(b, string(v))
	case object:
		return appendObject(b, v)
	case map[string]string:
		return appendPairs(b, v)
	case []any:
		return appendArray(b, v)
	case json.RawMessage:
		return append(b, v...), nil
	}
	other, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", v, err)
	}
	return append(b, other...), nil
}

func appendObject(b []byte, o object) ([]byte, error) {
	var room [64]string
	keys := room[:0]
	for key := range o {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	b = append(b, '{')
	for i, key := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		var err error
		if b, err = appendString(b, key); err != nil {
			return nil, err
		}
		b = append(b, ':')
		if b, err = appendJSON(b, o[key]); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

func appendPairs(b []byte, m map[string]string) ([]byte, error) {
	o := make(object, len(m))
	for k, v := range m {
		o[k] = v
	}
	return appendObject(b, o)
}

func appendArray(b []byte, list []any) ([]byte, error) {
	b = append(b, '[')
	for i, v := range list {
		if i > 0 {
			b = append(b, ',')
		}
		var err error
		if b, err = appendJSON(b, v); err != nil {
			return nil, err
		}
	}
	return append(b, ']'), nil
}

func appendString(b []byte, s string) ([]byte, error) {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= 0x7f {
			quoted, err := json.Marshal(s)
			return append(b, quoted...), err
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"'), nil
}

// indented is how Stripe lays out webhook payloads.
func indented(v any) ([]byte, error) {
	body, err := encode(v)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := json.Indent(&out, body, "", "  "); err != nil {
		return nil, fmt.Errorf("lay out a payload: %w", err)
	}
	return out.Bytes(), nil
}
