package aws

import "context"

// Pages is a paginator of the SDK. AWS may end any answer early, and say that there is more.
type Pages[Page, Options any] interface {
	HasMorePages() bool
	NextPage(ctx context.Context, opts ...func(*Options)) (Page, error)
}

// All returns what is in all pages.
func All[Item, Page, Options any](ctx context.Context, pages Pages[Page, Options], items func(Page) []Item, opts ...func(*Options)) ([]Item, error) {
	var all []Item
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx, opts...)
		if err != nil {
			return nil, err
		}
		all = append(all, items(page)...)
	}
	return all, nil
}
