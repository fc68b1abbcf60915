package enforcer

import "context"

func (e *Enforcer) strict(ctx context.Context, c *counter, n int64, key string) Decision {
	return e.unavailable(c, 0)
}
