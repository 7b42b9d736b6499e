// Package cli is the command line of keb.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kyma-project/keb/cmd/keb/internal/view"
	"github.com/kyma-project/keb/libs/api/broker"
	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/libs/tlsfiles"
)

// IO holds the streams of the command line. Progress goes to Err when Out carries JSON.
type IO struct {
	In       io.Reader
	Out, Err io.Writer
}

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// usage is an error in the arguments or flags of a command.
type usage struct{ text string }

// Error implements error.
func (u *usage) Error() string { return u.text }

func usageError(format string, args ...any) error { return &usage{text: fmt.Sprintf(format, args...)} }

// Main runs one command and returns the exit code: 0 success, 1 failure, 2 wrong usage. It prints an error as one line on Err.
func Main(ctx context.Context, args []string, std IO) int {
	root := newRoot(std)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		// Ctrl-C needs no explanation.
		return exitFailed
	}
	_, _ = fmt.Fprintf(std.Err, "keb: %s\n", service.OneLine(err)) // nowhere else to say it
	if _, ok := errors.AsType[*usage](err); ok || isCobraUsage(err) {
		return exitUsage
	}
	return exitFailed
}

// isCobraUsage reports whether cobra itself returned the error before a command ran.
func isCobraUsage(err error) bool {
	for _, start := range []string{"unknown command", "unknown flag", "unknown shorthand", "accepts ", "required flag", "invalid argument", "flag needs", "bad flag syntax"} {
		if strings.HasPrefix(err.Error(), start) {
			return true
		}
	}
	return false
}

func newRoot(std IO) *cobra.Command {
	o := &options{IO: std}
	// Main prints errors in one line; cobra would print the whole help after each mistake.
	root := &cobra.Command{
		Use:   "keb",
		Short: "Run Kyma Environment Broker, order runtimes, and show the state of operations",
		Long: `Run Kyma Environment Broker, order runtimes, and show the state of operations.

"keb up" runs the whole system in one process. The other commands talk to a running system.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkValues(cmd); err != nil {
				return err
			}
			return o.check(cmd)
		},
	}
	root.SetIn(std.In)
	root.SetOut(std.Out)
	root.SetErr(std.Err)
	o.register(root)
	root.AddCommand(
		newUp(o), newProvision(o), newDeprovision(o), newOperations(o), newOperation(o), newWatch(o), newProcess(o), newBench(o),
		newUpgrade(o), newOrchestrations(o), newRuntimes(o), newFind(o), newInstance(o), newKubeconfig(o), newTaskrun(o), newStuck(o), newErrors(o), newTop(o), newWorkers(o),
		newJob(o), newLandscape(o), newNATS(o), newSecrets(o), newForward(o), newHealthcheck(o), newAccess(o), newWorker(o), newFacts(o), newHold(o), newLimits(o), newWebhooks(o), newEvent(o), newBatches(o), newBatch(o), newDeadLetters(o), newMCP(o),
	)
	o.completeFlags(root)
	for _, cmd := range root.Commands() {
		if cmd.HasSubCommands() && !cmd.Runnable() {
			group(cmd)
		}
	}
	return root
}

// group makes calling a command without one of its subcommands an error. cobra would print its help and return success.
func group(cmd *cobra.Command) {
	var names []string
	for _, sub := range cmd.Commands() {
		names = append(names, sub.Name())
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usageError("%s needs a command: %s; see %s --help", cmd.CommandPath(), strings.Join(names, ", "), cmd.CommandPath())
		}
		return usageError("%s has no command %q; allowed: %s", cmd.CommandPath(), args[0], strings.Join(names, ", "))
	}
	cmd.RunE = func(*cobra.Command, []string) error { return nil } // Args rejects everything; without RunE cobra would print the help
}

// atLeastOne is cobra.MinimumNArgs(1) with a message that names the missing argument.
func atLeastOne(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usageError("%s needs %s; see %s --help", cmd.Name(), name, cmd.CommandPath())
		}
		return nil
	}
}

// tlsPrefix is the prefix of the variables of options.tls.
const tlsPrefix = "KEB_"

// options holds the flags of all commands.
type options struct {
	IO
	osbAddr, operatorAddr, landscapeAddr string
	dataDir                              string
	user, password, passwordFile         string
	token, tokenFile                     string
	// tls names the TLS files for the OSB and the operator API.
	tls tlsfiles.Client
	// shared is the result of transport.
	shared *tlsfiles.Transport
	output string
	// columns are the columns of outputCustom.
	columns view.Columns
}

// Output formats.
const (
	outputText = "text"
	outputJSON = "json"
	// outputTable is an alias of outputText, as in other command lines of Kyma.
	outputTable = "table"
	// outputCustom is followed by "=" and the columns. Only lists support it.
	outputCustom = "custom"
)

// listAnnotation marks the commands that can print custom columns.
const listAnnotation = "list"

func (o *options) register(root *cobra.Command) {
	flags := root.PersistentFlags()
	flags.StringVar(&o.osbAddr, "osb-addr", env("KEB_OSB_ADDR", "127.0.0.1:8080"), "address of the OSB API (KEB_OSB_ADDR)")
	flags.StringVar(&o.operatorAddr, "operator-addr", env("KEB_OPERATOR_ADDR", "127.0.0.1:8081"),
		"address of the operator API (KEB_OPERATOR_ADDR)")
	flags.StringVar(&o.landscapeAddr, "landscape-addr", env("KEB_LANDSCAPE_ADDR", "127.0.0.1:8090"),
		"address of the landscape simulator (KEB_LANDSCAPE_ADDR)")
	flags.StringVar(&o.dataDir, "data-dir", env("KEB_DATA_DIR", ".keb"), "data folder of keb up (KEB_DATA_DIR)")
	flags.StringVar(&o.user, "user", env("KEB_OSB_USER", "keb"), "user of the OSB API (KEB_OSB_USER)")
	// There is no flag for the password, because other users of the machine could read it in the list of processes.
	o.password = env("KEB_OSB_PASSWORD", "keb")
	o.passwordFile = env("KEB_OSB_PASSWORD_FILE", "")
	flags.StringVarP(&o.output, "output", "o", outputText, "format of the output: text (or table), json, or for lists custom=HEADER:JSONPATH,...")
	// The same holds for the token.
	flags.StringVar(&o.tokenFile, "token-file", env("KEB_TOKEN_FILE", ""), "file with the access token (KEB_TOKEN_FILE); KEB_TOKEN holds the token itself")
	flags.StringVar(&o.tls.CAFile, "ca-file", env("KEB_CA_FILE", ""), "file with the certificate authority of the APIs (KEB_CA_FILE); implies https")
	flags.StringVar(&o.tls.CertFile, "cert-file", env("KEB_CERT_FILE", ""), "file with the client certificate for the APIs (KEB_CERT_FILE)")
	flags.StringVar(&o.tls.KeyFile, "key-file", env("KEB_KEY_FILE", ""), "file with the key of the client certificate (KEB_KEY_FILE)")
	_ = root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions( // the flag exists
		[]string{outputText, outputJSON, outputCustom + "="}, cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace))
}

// mayBeEmpty has the flags for which an empty value has a meaning, by command; "" stands for every command.
var mayBeEmpty = map[string][]string{
	"":                  {"data", "overlays", "platform-region"},
	"keb nats config":   {"worker"},
	"keb process apply": {"name"},
	"keb secrets init":  {"worker"},
	// An empty value overrides a variable. keb up itself rejects an empty data folder.
	"keb up": {"access-tokens-file", "data-dir", "database-url", "maintenance-policy"},
}

// checkValues rejects flags that are set to nothing, as by an unset variable of a shell: a condition without a value would select more than
// the user wants, and without a CA file a connection would not be encrypted.
func checkValues(cmd *cobra.Command) (err error) {
	allowed := slices.Concat(mayBeEmpty[""], mayBeEmpty[cmd.CommandPath()])
	cmd.Flags().VisitAll(func(flag *pflag.Flag) {
		values := []string{flag.Value.String()}
		if list, ok := flag.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		isEmpty := len(values) == 0 || slices.ContainsFunc(values, func(value string) bool { return strings.Trim(value, ",") == "" })
		if err == nil && flag.Changed && isEmpty && !slices.Contains(allowed, flag.Name) {
			err = usageError("--%s has no value", flag.Name)
		}
	})
	return err
}

func (o *options) check(cmd *cobra.Command) error {
	format, spec, custom := strings.Cut(o.output, "=")
	switch {
	case custom && format == outputCustom && cmd.Annotations[listAnnotation] == "":
		return usageError("--output %s is only allowed for lists; %s supports text and json", outputCustom, cmd.CommandPath())
	case custom && format == outputCustom:
		var err error
		if o.columns, err = view.ParseColumns(spec); err != nil {
			return usageError("--output custom: %s", err)
		}
		o.output = outputCustom
	case o.output == outputTable:
		o.output = outputText
	case o.output != outputText && o.output != outputJSON:
		return usageError("--output %q is not a format; allowed: %s, %s, and for lists %s=HEADER:JSONPATH,...", o.output, outputText, outputJSON, outputCustom)
	}
	if o.passwordFile != "" {
		raw, err := os.ReadFile(o.passwordFile)
		if err != nil {
			return usageError("KEB_OSB_PASSWORD_FILE: %s", err)
		}
		o.password = strings.TrimSpace(string(raw))
	}
	return o.readToken()
}

// readToken reads the access token.
func (o *options) readToken() error {
	o.token = os.Getenv("KEB_TOKEN")
	if o.tokenFile != "" {
		raw, err := os.ReadFile(o.tokenFile)
		if err != nil {
			return usageError("--token-file, KEB_TOKEN_FILE: %s", err)
		}
		o.token = strings.TrimSpace(string(raw))
		if o.token == "" {
			return usageError("--token-file, KEB_TOKEN_FILE: %s is empty", o.tokenFile)
		}
	}
	if strings.ContainsFunc(o.token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return usageError("the access token must be one line of printable ASCII characters; check KEB_TOKEN or the token file")
	}
	return nil
}

// What a request contains to authenticate the caller.
const (
	tokenSent    = "the access token is"
	passwordSent = "user and password of the OSB API are"
)

// warnOfClearText prints a warning if a secret is sent unencrypted to another machine. Names without a dot denote this machine or services in
// the same network.
func (o *options) warnOfClearText(address, sent string) {
	base, err := operator.BaseURL(address)
	if err != nil {
		return // the client reports the invalid address
	}
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "http" || !strings.ContainsAny(u.Hostname(), ".:") || net.ParseIP(u.Hostname()).IsLoopback() {
		return
	}
	// There is nowhere else to say it.
	_, _ = fmt.Fprintf(o.Err, "keb: warning: %s sent unencrypted to %s; use https:// if the server supports TLS\n", sent, base)
}

// address returns the URL of an API. With TLS files it is https, unless the address says http.
func (o *options) address(of string) string {
	if o.tls.Enabled() && !strings.Contains(of, "://") {
		return "https://" + of
	}
	return of
}

// transport returns the shared transport of all requests to the OSB and the operator API.
func (o *options) transport() (*tlsfiles.Transport, error) {
	if o.shared == nil {
		made, err := o.tls.Transport(tlsPrefix)
		if err != nil {
			return nil, usageError("%s", err)
		}
		o.shared = made
	}
	return o.shared, nil
}

// operatorClient returns a client of the operator API.
func (o *options) operatorClient() (*operator.Client, error) {
	address := o.address(o.operatorAddr)
	if o.token != "" {
		o.warnOfClearText(address, tokenSent)
	}
	transport, err := o.transport()
	if err != nil {
		return nil, err
	}
	client, err := operator.New(address, o.token)
	if err != nil {
		return nil, err
	}
	return client.Through(transport), nil
}

// brokerClient returns a client of the broker API.
func (o *options) brokerClient() (*broker.Client, error) {
	address, sent := o.address(o.osbAddr), passwordSent
	if o.token != "" {
		sent = tokenSent
	}
	o.warnOfClearText(address, sent)
	transport, err := o.transport()
	if err != nil {
		return nil, err
	}
	return broker.New(broker.Config{Address: address, Token: o.token, User: o.user, Password: o.password, Transport: transport})
}

func (o *options) json() bool { return o.output == outputJSON }

func (o *options) text() bool { return o.output == outputText }

// progress returns the writer for progress messages.
func (o *options) progress() io.Writer {
	if o.text() {
		return o.Out
	}
	return o.Err
}

func env(name, fallback string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return fallback
}

// exactly is cobra.ExactArgs with a message that names the missing arguments.
func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return usageError("%s needs %s; see %s --help", cmd.Name(), strings.Join(names[len(args):], " and "), cmd.CommandPath())
		case len(args) > len(names):
			return usageError("%s: unexpected argument %q; see %s --help", cmd.Name(), args[len(names)], cmd.CommandPath())
		}
		return nil
	}
}
