package schema

import "context"

// At is the version of the database's schema; 0: it has none.
func At(ctx context.Context, q Querier) (int, error) { return current(ctx, q) }
