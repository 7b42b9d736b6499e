package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/kyma-project/keb/cmd/keb/internal/view"
	"github.com/kyma-project/keb/libs/api/operator"
)

func newEvent(o *options) *cobra.Command {
	cmd := &cobra.Command{Use: "event", Aliases: []string{"events"}, Short: "Send events to steps that wait for them"}
	var data, id string
	send := &cobra.Command{
		Use:   "send KEY",
		Short: "Send an event to the step that waits for its key",
		Long: `Send an event to the step that waits for its key, as an external system does. keb operation shows the key. The step continues at
once; an event for which no step waits yet is kept for seven days. Role: sender or operator.`,
		Example: "  keb event send approval.0193a3c5-6c0e-7a9e-9c58-7d1f0f3a2b10 --data '{\"approved\": true}' --id 42",
		Args:    exactly("the key of an event"),
		RunE:    func(cmd *cobra.Command, args []string) error { return o.sendEvent(cmd.Context(), args[0], id, data) },
	}
	send.Flags().StringVar(&data, "data", "", "the data of the event, JSON of at most 64 KiB; - reads the standard input")
	send.Flags().StringVar(&id, "id", "", "the ID of the event: a second event with the same key, sender and ID has no effect")
	cmd.AddCommand(send)
	return cmd
}

func (o *options) sendEvent(ctx context.Context, key, id, data string) error {
	if data == "-" {
		read, err := io.ReadAll(o.In)
		if err != nil {
			return err
		}
		data = string(read)
	}
	if data != "" && !json.Valid([]byte(data)) {
		return usageError("--data: must be JSON")
	}
	return answer(ctx, o, func(c *operator.Client, ctx context.Context) (*operator.EventAnswer, json.RawMessage, error) {
		return c.SendEvent(ctx, key, id, json.RawMessage(data))
	}, func(sent *operator.EventAnswer) error {
		what := "stored"
		if sent.Repeated {
			what = "was stored before"
		}
		_, err := fmt.Fprintf(o.Out, "event %s, id %s: %s\n", view.OneLine(sent.Key), view.OneLine(sent.ID), what)
		return err
	})
}
