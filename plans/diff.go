package plans

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
)

// Diff returns the dotted paths of the canonical encoding whose values differ between the two
// catalogs, sorted: what a node logs when its own file is not the published one. It is empty when
// both mean the same.
func (c *Catalog) Diff(other *Catalog) []string {
	if c.hash == other.hash {
		return nil
	}
	a, b := flatten(c.canonical), flatten(other.canonical)
	var out []string
	for path, value := range a {
		if there, ok := b[path]; !ok || there != value {
			out = append(out, path)
		}
	}
	for path := range b {
		if _, ok := a[path]; !ok {
			out = append(out, path)
		}
	}
	slices.Sort(out)
	return out
}

// flatten returns the values of an encoding by path. The encoding is this package's own, so what
// cannot be read is a zero catalog, which has no values.
func flatten(canonical []byte) map[string]string {
	out := make(map[string]string)
	var walk func(path string, raw json.RawMessage)
	walk = func(path string, raw json.RawMessage) {
		var object map[string]json.RawMessage
		if !bytes.HasPrefix(raw, []byte("{")) || json.Unmarshal(raw, &object) != nil || len(object) == 0 {
			out[path] = string(raw)
			return
		}
		for _, key := range slices.Sorted(maps.Keys(object)) {
			walk(join(path, key), object[key])
		}
	}
	if len(canonical) > 0 {
		walk("", canonical)
	}
	return out
}
