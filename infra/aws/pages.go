package aws

import (
	"context"
	"iter"
)

// PageSize is how many objects a list asks EC2 for at once. Terraform wants a hundred, unless its user says otherwise.
const PageSize = 100

// Pages is one of the SDK's paginators, whose options have the type O and whose pages the type P.
type Pages[O, P any] interface {
	HasMorePages() bool
	NextPage(ctx context.Context, options ...func(*O)) (P, error)
}

// Each yields what the pages have, and asks for a page only when it is needed. An error is the last that it yields.
func Each[O, P, T any](ctx context.Context, pages Pages[O, P], items func(P) []T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, item := range items(page) {
				if !yield(item, nil) {
					return
				}
			}
		}
	}
}
