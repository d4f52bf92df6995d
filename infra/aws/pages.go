package aws

import (
	"context"
	"fmt"
	"iter"
)

// PageSize is how many objects a list asks EC2 for at once. Terraform wants a hundred, unless its user says otherwise.
const PageSize = 100

// paginator is one of the SDK's paginators, whose options have the type O and whose pages the type P. AWS may end any answer
// early, and say that there is more.
type paginator[O, P any] interface {
	HasMorePages() bool
	NextPage(ctx context.Context, options ...func(*O)) (P, error)
}

// Each yields what items makes of the pages, and asks for a page only when it is needed. An error is the last that it
// yields; it begins with what was to be done, such as "list volumes".
func Each[O, P, T any](ctx context.Context, what string, pages paginator[O, P], items func(P) ([]T, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		err := read(ctx, pages, func(page P) (bool, error) {
			all, err := items(page)
			for _, item := range all {
				if err == nil && !yield(item, nil) {
					return false, nil
				}
			}
			return true, err
		})
		if err != nil {
			var none T
			yield(none, fmt.Errorf("%s: %w", what, err))
		}
	}
}

// All returns what is in all pages.
func All[O, P, T any](ctx context.Context, pages paginator[O, P], items func(P) []T, options ...func(*O)) (all []T, err error) {
	err = read(ctx, pages, func(page P) (bool, error) {
		all = append(all, items(page)...)
		return true, nil
	}, options...)
	return all, err
}

// read gives pages to take until that wants no more.
func read[O, P any](ctx context.Context, pages paginator[O, P], take func(P) (more bool, err error), options ...func(*O)) error {
	for more := true; more && pages.HasMorePages(); {
		page, err := pages.NextPage(ctx, options...)
		if err != nil {
			return err
		}
		if more, err = take(page); err != nil {
			return err
		}
	}
	return nil
}
