package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/kyma-project/keb/libs/api/operator"
)

func newFacts(o *options) *cobra.Command {
	facts := &cobra.Command{Use: "facts", Short: "Publish facts about operations again"}
	var since string
	replay := &cobra.Command{
		Use:   "replay --since TIME",
		Short: "Publish facts again that occurred since a given time",
		Long: `Publish facts again that occurred since a given time, after the stream KEB_FACTS was lost. They are derived from the history of operations and
have the same ids as before, so readers that have seen them ignore them. Role: operator.`,
		Example: "  keb facts replay --since 2h\n  keb facts replay --since 2026-11-21T22:00:00Z",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if since == "" {
				return usageError("facts replay needs --since TIME; see keb facts replay --help")
			}
			at, err := parseTime(since, ago)
			if err != nil {
				return usageError("--since %q: %s", since, err)
			}
			return o.replayFacts(cmd.Context(), at)
		},
	}
	replay.Flags().StringVar(&since, "since", "", "a time such as 2026-11-21T22:00:00Z, or a duration such as 2h (required)")
	facts.AddCommand(replay)
	return facts
}

func (o *options) replayFacts(ctx context.Context, since time.Time) error {
	client, err := o.operatorClient()
	if err != nil {
		return err
	}
	total := 0
	for replay := (operator.Replay{Since: since.UTC()}); ; {
		answer, err := client.ReplayFacts(ctx, replay)
		if err != nil {
			return fmt.Errorf("%w (%d facts were published; run the command again)", err, total)
		}
		total += answer.Published
		if replay.Next = answer.Next; replay.Next == "" {
			return o.done(map[string]int{"published": total}, "%d facts published again\n", total)
		}
		if _, err := fmt.Fprintf(o.Err, "%d facts published again so far\n", total); err != nil {
			return err
		}
	}
}
