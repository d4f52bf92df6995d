package fleet

import "context"

// AskSilence is how AskAPI uses a Silence.
func AskSilence(ctx context.Context, s *Silence, cluster, endpoint string, question func() error) error {
	return s.ask(ctx, cluster, endpoint, question)
}
