package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/kyma-project/keb/libs/api/broker"
)

// one selects a single runtime by its attributes.
type one struct{ account, subaccount, instance, runtime, shoot string }

func (s *one) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVarP(&s.account, "account", "g", "", "global account of the runtime")
	flags.StringVarP(&s.subaccount, "subaccount", "s", "", "sub-account of the runtime")
	flags.StringVarP(&s.instance, "instance-id", "i", "", "instance of the runtime")
	flags.StringVarP(&s.runtime, "runtime-id", "r", "", "id of the runtime")
	flags.StringVarP(&s.shoot, "shoot", "c", "", "shoot of the runtime")
}

// instanceOr returns the instance given as the argument of a command, or the one that the flags select.
func (s *one) instanceOr(ctx context.Context, o *options, args []string) (string, error) {
	switch {
	case len(args) > 1:
		return "", usageError("unexpected argument %q: only one instance is allowed", args[1])
	case len(args) == 1 && *s != (one{}):
		return "", usageError("give either the instance or flags that select the runtime, not both")
	case len(args) == 1:
		return args[0], nil
	}
	return s.find(ctx, o)
}

// find returns the instance that all given conditions select. It is an error if there is none or more than one.
func (s *one) find(ctx context.Context, o *options) (string, error) {
	if s.subaccount == "" && s.instance == "" && s.runtime == "" && s.shoot == "" {
		return "", usageError("no runtime selected: give its instance, or one of --subaccount, --instance-id, --runtime-id, --shoot, optionally with --account")
	}
	q := url.Values{"op_detail": {"last"}}
	for _, state := range broker.RuntimeStates() {
		// An instance that is suspended exists; one that is deprovisioned does not, whatever its deprovisioning has left.
		if state != broker.RuntimeDeprovisioned && state != broker.RuntimeIncomplete {
			q.Add("state", string(state))
		}
	}
	for name, value := range map[string]string{
		"account": s.account, "subaccount": s.subaccount, "instance_id": s.instance, "runtime_id": s.runtime, "shoot": s.shoot,
	} {
		if value != "" {
			q.Set(name, value)
		}
	}
	items, err := o.runtimes(ctx, q)
	if err != nil {
		return "", err
	}
	switch len(items) {
	case 0:
		return "", errors.New("no runtime matches; keb runtimes lists them")
	case 1:
		var found runtime
		if err := json.Unmarshal(items[0], &found); err != nil {
			return "", fmt.Errorf("find the runtime: %w", err)
		}
		return found.InstanceID, nil
	}
	return "", fmt.Errorf("%d runtimes match; select one with --instance-id, --runtime-id or --shoot", len(items))
}

func newKubeconfig(o *options) *cobra.Command {
	var which one
	var file string
	cmd := &cobra.Command{
		Use:   "kubeconfig [INSTANCE]",
		Short: "Download the kubeconfig of a runtime",
		Long: `Download the kubeconfig of a runtime, to standard output or into a file. It contains no secret: kubectl logs in with OpenID Connect,
which requires the plugin oidc-login.`,
		Example:           "  keb kubeconfig INSTANCE --file runtime.yaml\n  keb kubeconfig -g my-account -c c-1a2b3c4",
		ValidArgsFunction: o.completeInstance,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.json() {
				return usageError("--output is not supported: a kubeconfig is YAML")
			}
			instance, err := which.instanceOr(cmd.Context(), o, args)
			if err != nil {
				return err
			}
			return o.kubeconfig(cmd.Context(), instance, file)
		},
	}
	which.register(cmd)
	cmd.Flags().StringVar(&file, "file", "", "file to write to; standard output if not given")
	return cmd
}

func (o *options) kubeconfig(ctx context.Context, instance, file string) error {
	client, err := o.brokerClient()
	if err != nil {
		return err
	}
	content, err := client.Kubeconfig(ctx, instance)
	if errors.Is(err, broker.ErrNotFound) {
		return fmt.Errorf("there is no kubeconfig of instance %s; it may have been deleted, or its provisioning has not ended", instance)
	}
	if err != nil {
		return err
	}
	if file == "" {
		_, err = o.Out.Write(content)
		return err
	}
	if err := writeFile(file, 0o600, func(to io.Writer) error {
		_, err := to.Write(content)
		return err
	}); err != nil {
		return err
	}
	_, err = fmt.Fprintf(o.Out, "kubeconfig of instance %s is in %s\n", instance, file)
	return err
}
