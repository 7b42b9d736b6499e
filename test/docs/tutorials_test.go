package docs_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/test/internal/harness"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(harness.Tests{M: m}) }

// tutorials are the pages in docs/tutorials, in the order in which a reader goes through them.
var tutorials = []string{"provisioning", "deprovisioning", "upgrade"}

// tutorialLimit is what the pages promise for the first one; all of them together must keep it.
const tutorialLimit = 10 * time.Minute

// command is a block of a tutorial that a reader runs. Words after "sh" in its fence select the language (go, node, python), and say how
// it is run: "setup" and "deploy" are not, "install" may need a registry, and "terminal" keeps running in a terminal of that name.
type command struct {
	page, text             string
	terminal, until        string
	setup, deploy, install bool
}

var (
	commandBlock = regexp.MustCompile("(?ms)^```sh([^\n]*)\n(.*?)^```")
	terminalName = regexp.MustCompile(`terminal=(\w+)`)
	untilText    = regexp.MustCompile(`until="([^"]+)"`)
	languageWord = []string{"go", "node", "python"}
)

// commands returns the blocks of a page for a language.
func commands(t *testing.T, page, language string) (found []command) {
	t.Helper()
	for _, m := range commandBlock.FindAllStringSubmatch(read(t, "docs/tutorials/"+page+".md"), -1) {
		words := strings.Fields(m[1])
		if slices.ContainsFunc(words, func(w string) bool { return slices.Contains(languageWord, w) && w != language }) {
			continue
		}
		c := command{page: page, text: m[2], setup: slices.Contains(words, "setup"), deploy: slices.Contains(words, "deploy"), install: slices.Contains(words, "install")}
		if name := terminalName.FindStringSubmatch(m[1]); name != nil {
			until := untilText.FindStringSubmatch(m[1])
			require.NotNil(t, until, "%s: a terminal needs until=", page)
			c.terminal, c.until = name[1], until[1]
		}
		found = append(found, c)
	}
	require.NotEmpty(t, found, page)
	return found
}

// session is the start of the script: terminal starts a program in the background, in place of an earlier one of the same name.
const session = `set -euo pipefail
declare -A terminals
stop() { kill -TERM -- "-$1" 2>/dev/null || true; wait "$1" || true; }
trap 'for pid in "${terminals[@]}"; do stop "$pid"; done' EXIT
terminal() { # NAME TEXT COMMAND
	[ -z "${terminals[$1]:-}" ] || stop "${terminals[$1]}"
	setsid bash -c "exec $3" >"$logs/$1.log" 2>&1 &
	terminals[$1]=$!
	for _ in $(seq 900); do
		! grep -q "$2" "$logs/$1.log" || return 0
		kill -0 "${terminals[$1]}" 2>/dev/null || break
		sleep 0.1
	done
	echo "terminal $1 does not print '$2':"; cat "$logs/$1.log"; return 1
}
`

// offline installs what python3 has, and the copy of the library, where pip reaches no registry.
const offline = ` || {
	echo "pip cannot install: using the modules of python3"
	rm -rf .venv && python3 -m venv --system-site-packages --without-pip .venv
	echo "$PWD/vendor/keb-worker" >"$(echo .venv/lib/python3*/site-packages)/keb.pth"
}
`

// script returns the commands of the pages as one session in bash.
func script(t *testing.T, language string) string {
	t.Helper()
	text := session
	for _, page := range tutorials {
		text += "echo '== " + page + "'\n"
		for _, c := range commands(t, page, language) {
			switch {
			case c.setup || c.deploy:
			case c.install:
				text += strings.TrimSpace(c.text) + offline
			case c.terminal != "":
				text += fmt.Sprintf("terminal %s '%s' '%s'\n", c.terminal, c.until, strings.TrimSpace(c.text))
			default:
				text += c.text
			}
		}
	}
	return text
}

// TestTutorials_FromEmptyFolder_Succeed runs the commands of the pages in a folder outside of the repository.
func TestTutorials_FromEmptyFolder_Succeed(t *testing.T) {
	for language, needed := range map[string]string{
		"go": "go version", "node": "npm --version", "python": "python3 -c 'import sys, nats, cryptography, prometheus_client, aiohttp; assert sys.version_info >= (3, 11)'",
	} {
		t.Run(language, func(t *testing.T) {
			if language != "go" { // the others install packages
				testkit.Suite(t, "docs")
			}
			if out, err := exec.CommandContext(t.Context(), "bash", "-c", "jq --version && "+needed).CombinedOutput(); err != nil {
				t.Skipf("this machine lacks a program or module of the tutorial: %s: %v\n%s", needed, err, out)
			}
			runTutorial(t, language)
		})
	}
}

func runTutorial(t *testing.T, language string) {
	t.Helper()
	clone, err := filepath.Abs(root)
	require.NoError(t, err)
	sys := harness.New(t, harness.Options{})
	cmd := exec.CommandContext(t.Context(), "bash", "-c", script(t, language))
	cmd.Dir = t.TempDir()
	path := filepath.Dir(harness.Keb(t)) + string(os.PathListSeparator) + os.Getenv("PATH")
	cmd.Env = append(os.Environ(), sys.Env()...)
	cmd.Env = append(cmd.Env, "PATH="+path, "clone="+clone, "logs="+t.TempDir())
	// The script stops what it has started.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	begun := time.Now()
	raw, err := cmd.CombinedOutput()
	out, took := string(raw), time.Since(begun)
	if err != nil {
		t.Fatalf("after %s: %v\n%s", took, err, out)
	}
	if took > tutorialLimit {
		t.Errorf("the tutorials took %s, want at most %s", took, tutorialLimit)
	}
	_, provisioning, _ := strings.Cut(out, "== provisioning")
	provisioning, deprovisioning, _ := strings.Cut(provisioning, "== deprovisioning")
	deprovisioning, upgrade, _ := strings.Cut(deprovisioning, "== upgrade")
	for page, part := range map[string][2]string{
		"provisioning":   {provisioning, `✓ Audit_Log_Create +audit-log +succeeded`},
		"deprovisioning": {deprovisioning, `✓ Audit_Log_Delete +audit-log +succeeded`},
		"upgrade":        {upgrade, `✓ Audit_Log_Create +audit-log +succeeded`},
	} {
		if !regexp.MustCompile(part[1]).MatchString(part[0]) {
			t.Errorf("%s: no line matches %s:\n%s", page, part[1], part[0])
		}
	}
	if language == "go" {
		checkWorkerModules(t, filepath.Join(cmd.Dir, "audit-log", "go.sum"))
	}
	summary := regexp.MustCompile(`(?m)^.*checks? passed.*$|^\d+ passed.*$`).FindString(provisioning)
	fmt.Printf("tutorials in %s: %s; keb worker check: %s\n", language, took.Round(time.Second), summary)
}
