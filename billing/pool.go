package billing

import (
	"context"
	"errors"
	"sync"
)

// each runs do for every item, at most wide at a time. It goes on after an error and returns them all; it starts
// nothing more once ctx has ended.
func each[T any](ctx context.Context, wide int, items []T, do func(context.Context, T) error) error {
	var wg sync.WaitGroup
	errs := make([]error, len(items))
	slots := make(chan struct{}, max(1, wide))
	for i, it := range items {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			wg.Wait()
			return errors.Join(append(errs, ctx.Err())...)
		}
		wg.Go(func() {
			defer func() { <-slots }()
			errs[i] = do(ctx, it)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
