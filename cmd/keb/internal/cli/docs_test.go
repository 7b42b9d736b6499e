package cli

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const repository = "../../../.."

// Every keb command in the documentation exists, with valid flags and the right number of arguments. No command is run.
func TestDocs_Commands_Exist(t *testing.T) {
	t.Parallel()
	checked := 0
	for name, text := range pages(t) {
		blocks, prose := commandsOf(text)
		for _, args := range blocks {
			checked++
			if err := try(args, true); err != nil {
				t.Errorf("%s: keb %s: %s", name, strings.Join(args, " "), err)
			}
		}
		for _, args := range prose {
			checked++
			if err := try(args, false); err != nil {
				t.Errorf("%s: keb %s: %s", name, strings.Join(args, " "), err)
			}
		}
	}
	if checked < 80 {
		t.Errorf("found only %d commands", checked)
	}
}

func TestDocs_UnknownCommand_IsReported(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"keb opertions", "keb operations --stat failed", "keb operations -Z", "keb job no-such-job", "keb operations --page many", "keb watch"} {
		blocks, _ := commandsOf("```sh\n" + line + "   # comment\n```\n")
		if len(blocks) != 1 {
			t.Errorf("%s: found %d commands", line, len(blocks))
			continue
		}
		if try(blocks[0], true) == nil {
			t.Errorf("%s is accepted as a command", line)
		}
	}
}

// try parses arguments as keb does. In prose, arguments and flag values may be missing.
func try(args []string, whole bool) error {
	root := newRoot(IO{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard})
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpCmd()
	cmd, rest, err := root.Find(args)
	if err != nil {
		return err
	}
	cmd.InitDefaultHelpFlag()
	if err := cmd.ParseFlags(rest); err != nil {
		if !whole && strings.Contains(err.Error(), "needs an argument") {
			return nil
		}
		return err
	}
	if help, _ := cmd.Flags().GetBool("help"); help {
		return nil
	}
	positional := cmd.Flags().Args()
	if !whole && len(positional) == 0 {
		return nil
	}
	return cmd.ValidateArgs(positional)
}

func pages(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, start := range []string{"README.md", "CHANGELOG.md", "docs", "deploy", "examples", "cmd/keb/internal/scaffold"} {
		err := filepath.WalkDir(filepath.Join(repository, start), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".md") {
				return err
			}
			text, err := os.ReadFile(path)
			found[strings.TrimPrefix(filepath.ToSlash(path), repository+"/")] = string(text)
			return err
		})
		require.NoError(t, err)
	}
	return found
}

var (
	block = regexp.MustCompile("(?ms)^```(?:(?:sh|bash|console)(?: [^\n]*)?)?\n(.*?)^```")
	span  = regexp.MustCompile("`([^`\n]+)`")
	// The words before the arguments: the program, or the container of Docker Compose.
	starts = [][]string{{"docker", "compose", "run", "--rm", "cli"}, {"go", "run", "./cmd/keb"}, {"./bin/keb"}, {"bin/keb"}, {"keb"}}
)

// commandsOf returns the arguments of each keb command in the code blocks and the prose of a page.
func commandsOf(text string) (blocks, prose [][]string) {
	for _, m := range block.FindAllStringSubmatch(text, -1) {
		for line := range strings.Lines(strings.ReplaceAll(m[1], "\\\n", " ")) {
			for _, words := range split(line) {
				if args, ok := argsOf(words); ok {
					blocks = append(blocks, args)
				}
			}
		}
	}
	for _, m := range span.FindAllStringSubmatch(block.ReplaceAllString(text, ""), -1) {
		for _, words := range split(m[1]) {
			if args, ok := argsOf(words); ok {
				prose = append(prose, args)
			}
		}
	}
	return blocks, prose
}

var assignment = regexp.MustCompile(`^[A-Z_]+=`)

func argsOf(words []string) ([]string, bool) {
	for len(words) > 0 && assignment.MatchString(words[0]) {
		words = words[1:]
	}
	for _, start := range starts {
		if len(words) > len(start) && strings.Join(words[:len(start)], " ") == strings.Join(start, " ") {
			return words[len(start):], true
		}
	}
	return nil, false
}

// split returns the words of each command of a line, without comments and redirections.
func split(line string) [][]string {
	var commands [][]string
	var words []string
	word, quote, inWord, redirected := strings.Builder{}, rune(0), false, false
	endWord := func() {
		if inWord && !redirected {
			words = append(words, word.String())
		}
		if inWord {
			redirected = false
		}
		word.Reset()
		inWord = false
	}
	endCommand := func() {
		endWord()
		if len(words) > 0 {
			commands = append(commands, words)
		}
		words = nil
	}
scan:
	for _, c := range line {
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(c)
		case c == '\'' || c == '"':
			quote, inWord = c, true
		case c == '#' && !inWord:
			break scan
		case c == ' ' || c == '\t' || c == '\n':
			endWord()
		case c == '|' || c == ';' || c == '&' || c == '(' || c == ')':
			endCommand()
		case c == '>' || c == '<':
			endWord()
			redirected = true
		default:
			word.WriteRune(c)
			inWord = true
		}
	}
	endCommand()
	return commands
}
