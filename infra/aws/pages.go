package aws

import (
	"context"
	"fmt"
	"iter"
)

// PageSize is how many objects a list asks EC2 for at once. Terraform wants a hundred, unless its user says otherwise.
const PageSize = 100

// Pages is one of the SDK's paginators, whose options have the type O and whose pages the type P.
type Pages[O, P any] interface {
	HasMorePages() bool
	NextPage(ctx context.Context, options ...func(*O)) (P, error)
}

// Each yields what items makes of the pages, and asks for a page only when it is needed. An error is the last that it
// yields; it begins with what was to be done, such as "list volumes".
func Each[O, P, T any](ctx context.Context, what string, pages Pages[O, P], items func(P) ([]T, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for pages.HasMorePages() {
			var all []T
			page, err := pages.NextPage(ctx)
			if err == nil {
				all, err = items(page)
			}
			if err != nil {
				var none T
				yield(none, fmt.Errorf("%s: %w", what, err))
				return
			}
			for _, item := range all {
				if !yield(item, nil) {
					return
				}
			}
		}
	}
}
