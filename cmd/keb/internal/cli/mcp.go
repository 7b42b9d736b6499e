package cli

import (
	"errors"
	"fmt"
	"io"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"

	"github.com/kyma-project/keb/cmd/keb/internal/agent"
	"github.com/kyma-project/keb/libs/service"
)

func newMCP(o *options) *cobra.Command {
	var allowWrites bool
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "Serve the operator API to agents as a Model Context Protocol server on stdin and stdout",
		Long: `Serve the operator API to agents as a Model Context Protocol server on stdin and stdout. The client of the agent starts this command.

The tools read operations and their histories, what stands still, errors, instances, workers, processes, holds, limits, batches,
orchestrations, events, dead letters, webhooks, metrics and the actions of operators. Give the server a token of its own with the role viewer (KEB_TOKEN or --token-file).

With --allow-writes there are also tools that retry, skip and cancel, hold and release, order batches, apply limits and pause
orchestrations. Each first
returns a preview, and changes something only after an approval of exactly that preview. They need a token with the role operator.`,
		Example: "  keb mcp --operator-addr https://keb.example.com --token-file ~/.keb/agent-token",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := o.operatorClient()
			if err != nil {
				return err
			}
			server := agent.New(agent.Config{Version: service.Version(), AllowWrites: allowWrites}, agent.Deps{
				Reader: client, Operations: client, Holds: client, Batches: client, Orchestrations: client,
			})
			in, ok := o.In.(io.ReadCloser) // closing it ends a pending read
			if !ok {
				in = io.NopCloser(o.In)
			}
			err = server.Run(cmd.Context(), &mcp.IOTransport{Reader: in, Writer: closer{o.Out}})
			if err != nil && !errors.Is(err, io.EOF) && cmd.Context().Err() == nil {
				return fmt.Errorf("mcp: %w", err)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&allowWrites, "allow-writes", false, "add the tools that change something")
	return cmd
}

// closer is a writer that stays open.
type closer struct{ io.Writer }

// Close implements io.Closer.
func (closer) Close() error { return nil }
