package stripesim

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The encoder writes what encoding/json would read back as the same value.
func TestEncodeAgreesWithEncodingJSON(t *testing.T) {
	t.Parallel()
	value := rapid.Deferred(func() *rapid.Generator[any] { return anyValue(3) })
	rapid.Check(t, func(t *rapid.T) {
		v := value.Draw(t, "value")
		ours, err := encode(v)
		require.NoError(t, err)
		theirs, err := json.Marshal(v)
		require.NoError(t, err)
		require.JSONEq(t, string(theirs), string(ours))
	})
	_, err := encode(object{"broken": make(chan int)})
	require.Error(t, err)
}

func anyValue(depth int) *rapid.Generator[any] {
	leaves := []*rapid.Generator[any]{
		rapid.Just[any](nil), rapid.Bool().AsAny(), rapid.Int64().AsAny(), rapid.Int().AsAny(), rapid.String().AsAny(),
		rapid.MapOf(rapid.String(), rapid.String()).AsAny(), rapid.SliceOf(rapid.String()).AsAny(), rapid.Just[any](versionBasil),
		rapid.Just[any](json.RawMessage(`{"a":[1,null]}`)),
	}
	if depth > 0 {
		leaves = append(leaves, rapid.SliceOfN(anyValue(depth-1), 0, 4).AsAny(), rapid.MapOfN(rapid.String(), anyValue(depth-1), 0, 4).AsAny())
	}
	return rapid.OneOf(leaves...)
}
