package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kyma-project/keb/cmd/keb/internal/view"
	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/event"
)

func newWebhooks(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "webhooks",
		Aliases: []string{"webhook"},
		Short:   "Send facts about operations and orchestrations to other systems",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return answer(cmd.Context(), o, (*operator.Client).Webhooks, o.printWebhooks)
		},
	}
	deleting := &cobra.Command{
		Use: "delete WEBHOOK", Short: "Delete a webhook with its events", Args: exactly("the name or the id of a webhook"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.onWebhook(cmd.Context(), args[0], func(c *operator.Client, w *operator.Webhook) error {
				if err := c.DeleteWebhook(cmd.Context(), w.ID); err != nil {
					return err
				}
				return o.done(acted{w.ID, "deleted"}, "webhook %s deleted\n", view.OneLine(w.Name))
			})
		},
	}
	cmd.AddCommand(newWebhookCreate(o), deleting, newWebhookTest(o), newWebhookDeliveries(o),
		newWebhookChange(o, "enable", "Enable a webhook; waiting events are sent at once"),
		newWebhookChange(o, "disable", "Disable a webhook; waiting events stay, and later ones are lost"))
	return cmd
}

func newWebhookCreate(o *options) *cobra.Command {
	var request operator.WebhookRequest
	var format, secretFile string
	var kinds, types []string
	cmd := &cobra.Command{
		Use:   "create NAME URL",
		Short: "Create a webhook",
		Long: `Create a webhook: from now on, facts that all flags select are sent to the URL, each at least once. Without --kind these are operations that
fail, steps that begin to fail, and new states of orchestrations. Requests are signed (Standard Webhooks); without --secret-file a secret
is generated and printed once. The URL may contain a credential: it is sealed, and only its host is shown. With - it is read from the
standard input, because other users of the machine can see arguments in the list of processes. Role: operator.`,
		Example: "  keb webhooks create on-call https://example.org/keb --kind failing,failed --plan azure\n" +
			"  keb webhooks create chat - --format slack < slack-url",
		Args: exactly("a name", "a URL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			request.Name, request.URL, request.Format = args[0], args[1], operator.WebhookFormat(format)
			if request.URL == "-" {
				var err error
				if request.URL, err = readLine(cmd.Context(), o.In); err != nil {
					return fmt.Errorf("read the URL: %w", err)
				}
				if request.URL == "" {
					return usageError("the standard input has no URL")
				}
			}
			for _, k := range kinds {
				request.Filter.Kinds = append(request.Filter.Kinds, operator.WebhookKind(k))
			}
			for _, t := range types {
				request.Filter.Types = append(request.Filter.Types, event.OperationType(t))
			}
			return o.createWebhook(cmd.Context(), request, secretFile)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&format, "format", "", "cloudevents (default), cloudevents-binary or slack")
	flags.StringSliceVar(&kinds, "kind", nil, "what to send: "+strings.Join(texts(operator.WebhookKinds()), ", ")+" (default failing, failed, orchestration)")
	flags.StringSliceVar(&types, "type", nil, "types of operations, for example provision")
	flags.StringSliceVar(&request.Filter.Plans, "plan", nil, "names or ids of plans")
	flags.StringSliceVar(&request.Filter.GlobalAccounts, "global-account", nil, "ids of global accounts")
	flags.StringVar(&secretFile, "secret-file", "", `a file with the secret: "whsec_" and the base64 of 24 to 64 bytes`)
	return cmd
}

func (o *options) createWebhook(ctx context.Context, request operator.WebhookRequest, secretFile string) error {
	if secretFile != "" {
		secret, err := os.ReadFile(secretFile)
		if err != nil {
			return err
		}
		request.Secret = strings.TrimSpace(string(secret))
	}
	request.By = o.author()
	return answer(ctx, o, func(c *operator.Client, ctx context.Context) (*operator.Webhook, json.RawMessage, error) {
		return c.CreateWebhook(ctx, request)
	}, func(w *operator.Webhook) error {
		text := fmt.Sprintf("webhook %s sends to %s\n", view.OneLine(w.Name), view.OneLine(w.Origin))
		if w.Secret != "" {
			text += fmt.Sprintf("secret %s; keep it, it is not shown again\n", w.Secret)
		}
		_, err := fmt.Fprint(o.Out, text)
		return err
	})
}

func (o *options) printWebhooks(list *operator.List[operator.Webhook]) error {
	rows := make([][]string, 0, len(list.Data))
	for i := range list.Data {
		w := &list.Data[i]
		state, delivered, problem := string(w.State), "-", w.Reason
		if w.State == operator.WebhookActive && w.Failures > 0 {
			state, problem = "failing", w.Error
		}
		if w.DeliveredAt != nil {
			delivered = view.Time(*w.DeliveredAt)
		}
		rows = append(rows, []string{w.Name, w.Origin, string(w.Format), filterText(&w.Filter), state, strconv.Itoa(w.Waiting), delivered, view.OneLine(problem)})
	}
	return o.printTable(page{what: "webhooks", number: 1, count: len(rows), total: len(rows)},
		[]string{"NAME", "TO", "FORMAT", "EVENTS", "STATE", "WAITING", "DELIVERED", "PROBLEM"}, rows)
}

// filterText returns a filter as text.
func filterText(f *operator.WebhookFilter) string {
	parts := []string{"failing, failed, orchestration"}
	if len(f.Kinds) > 0 {
		parts[0] = strings.Join(texts(f.Kinds), ", ")
	}
	for _, values := range [][]string{texts(f.Types), f.Plans, f.GlobalAccounts} {
		if len(values) > 0 {
			parts = append(parts, strings.Join(values, " or "))
		}
	}
	return view.OneLine(strings.Join(parts, "; "))
}

// onWebhook calls f with the webhook that has a name or an id.
func (o *options) onWebhook(ctx context.Context, name string, f func(*operator.Client, *operator.Webhook) error) error {
	client, err := o.operatorClient()
	if err != nil {
		return err
	}
	list, _, err := client.Webhooks(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(list.Data, func(w operator.Webhook) bool { return w.Name == name || w.ID == name })
	if i < 0 {
		return fmt.Errorf("there is no webhook %q; see keb webhooks", name)
	}
	return f(client, &list.Data[i])
}

func newWebhookChange(o *options, action, short string) *cobra.Command {
	return &cobra.Command{
		Use: action + " WEBHOOK", Short: short, Args: exactly("the name or the id of a webhook"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.onWebhook(cmd.Context(), args[0], func(c *operator.Client, w *operator.Webhook) error {
				changed, raw, err := c.ChangeWebhook(cmd.Context(), w.ID, action)
				if err != nil {
					return err
				}
				if o.json() {
					return printJSON(o.Out, raw)
				}
				_, err = fmt.Fprintf(o.Out, "webhook %s is %s, %d events wait\n", view.OneLine(changed.Name), changed.State, changed.Waiting)
				return err
			})
		},
	}
}

// errDelivery is the result of a test that the receiver did not accept.
var errDelivery = errors.New("the test event was not delivered")

func newWebhookTest(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "test WEBHOOK", Short: "Send a test event once, and show the result", Args: exactly("the name or the id of a webhook"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.onWebhook(cmd.Context(), args[0], func(c *operator.Client, w *operator.Webhook) error {
				d, raw, err := c.TestWebhook(cmd.Context(), w.ID)
				switch {
				case err != nil:
					return err
				case d.State != operator.WebhookDeliveryDelivered:
					return fmt.Errorf("%w: %s", errDelivery, view.OneLine(d.Error))
				case o.json():
					return printJSON(o.Out, raw)
				}
				_, err = fmt.Fprintf(o.Out, "delivered: %s answered %d\n", view.OneLine(w.Origin), d.Status)
				return err
			})
		},
	}
}

func newWebhookDeliveries(o *options) *cobra.Command {
	var p operator.Page
	cmd := &cobra.Command{
		Use: "deliveries WEBHOOK", Short: "List the events of a webhook with their results, newest first",
		Args: exactly("the name or the id of a webhook"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.onWebhook(cmd.Context(), args[0], func(c *operator.Client, w *operator.Webhook) error {
				list, raw, err := c.WebhookDeliveries(cmd.Context(), w.ID, p)
				if err != nil {
					return err
				}
				if o.json() {
					return printJSON(o.Out, raw)
				}
				rows := make([][]string, 0, len(list.Data))
				for i := range list.Data {
					d := &list.Data[i]
					rows = append(rows, []string{
						view.Time(d.CreatedAt), d.Kind, view.OneLine(d.Subject), string(d.State), strconv.Itoa(d.Attempts), view.Number(d.Status), view.OneLine(d.Error),
					})
				}
				return o.printTable(page{what: "events", number: max(p.Page, 1), size: p.PageSize, count: list.Count, total: list.TotalCount},
					[]string{"CREATED", "KIND", "SUBJECT", "STATE", "ATTEMPTS", "STATUS", "ERROR"}, rows)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&p.State, "state", "", "waiting, delivered or failed")
	flags.IntVar(&p.Page, "page", 0, "number of the page, from 1")
	flags.IntVar(&p.PageSize, "page-size", 0, "entries per page")
	return cmd
}
