package access

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/testkit"
)

// keptToken is a token that must not appear in any error or log.
const keptToken = "keb_CANARYCANARYCANARYCANARYCANARYCANARYCANARY"

func line(t testing.TB, name string, role Role, token string) string {
	t.Helper()
	text, err := TokenLine(name, role, hashOf(token))
	require.NoError(t, err)
	return text + "\n"
}

func write(t testing.TB, path, text string) {
	t.Helper()
	// Editors and Kubernetes replace a file atomically.
	next := path + ".next"
	require.NoError(t, os.WriteFile(next, []byte(text), 0o600))
	require.NoError(t, os.Rename(next, path))
}

func TestNewToken_Calls_ReturnUniqueTokens(t *testing.T) {
	t.Parallel()
	a, hash := NewToken()
	b, _ := NewToken()
	if a == b || len(a) < 40 || !strings.HasPrefix(a, "keb_") || hash != hashOf(a) || strings.Contains(hash, a) {
		t.Errorf("tokens %q, %q, hash %q", a, b, hash)
	}
}

func TestTokenLine_Parsed_IsEqual(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"jane", "jane.doe@example.com", "Jane Doe", "O'Brien", `a "quoted" one`, "a: b", "# no comment", "true", "~", "42", "[x]", "Jörg", "-", "*x", "&x", "!x", "a, b",
	} {
		list, err := parseTokens([]byte(line(t, name, Operator, "secret") + line(t, name, Viewer, "other")))
		if err != nil || len(list) != 2 || list[0].name != name || list[0].role != Operator || list[1].role != Viewer {
			t.Errorf("%q: %+v, %v", name, list, err)
		}
	}
	for name, role := range map[string]Role{"": Operator, "jane": "admin", " jane": Viewer, "a\nb": Viewer, strings.Repeat("x", 101): Viewer} {
		if text, err := TokenLine(name, role, hashOf("x")); err == nil {
			t.Errorf("%q %q: %s", name, role, text)
		}
	}
}

func TestParseTokens_Invalid_NamesLineOnly(t *testing.T) {
	t.Parallel()
	good := line(t, "jane", Operator, "secret")
	for name, tc := range map[string]struct{ text, want string }{
		"empty":           {"", "the file is empty"},
		"only a comment":  {"# nobody\n", "want a list"},
		"a token alone":   {keptToken + "\n", "want a list"},
		"a map":           {"jane: " + keptToken + "\n", "want a list"},
		"a list of words": {"- " + keptToken + "\n", "line 1: want {name"},
		"no YAML":         {good + "- {name: " + keptToken + "\n", "not readable as YAML"},
		"an alias":        {"- *" + keptToken + "\n", "not readable as YAML"},
		"an anchored map": {good + "- {name: &a x, role: *a, sha256: x}\n", "line 2: want {name"},
		"two documents":   {good + "---\n" + good, "one YAML document"},
		"the token":       {good + "- {name: joe, role: viewer, sha256: " + keptToken + "}\n", "line 2: sha256: want 64 hexadecimal digits"},
		"a clear token":   {good + "- {name: joe, role: viewer, token: " + keptToken + "}\n", "line 2: unknown key"},
		"a token as key":  {good + "- {name: joe, role: viewer, " + keptToken + ": x}\n", "line 2: unknown key"},
		"no name":         {"- {role: viewer, sha256: " + hashOf("x") + "}\n", "line 1: name: is missing"},
		"another role":    {"- {name: joe, role: admin, sha256: " + hashOf("x") + "}\n", "line 1: role: allowed are viewer, operator and sender"},
		"twice":           {good + line(t, "joe", Viewer, "secret"), "line 2: sha256: is the same as in line 1"},
		"a key twice":     {"- {name: joe, name: jane, role: viewer, sha256: " + hashOf("x") + "}\n", "line 1: name: is duplicated"},
		"short":           {"- {name: joe, role: viewer, sha256: abcd}\n", "line 1: sha256"},
	} {
		_, err := parseTokens([]byte(tc.text))
		if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "CANARY") {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
	if list, err := parseTokens([]byte("[]\n")); err != nil || len(list) != 0 {
		t.Errorf("an empty list: %v, %v", list, err)
	}
}

func TestTokenFile_Changed_IsReadAgain(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	write(t, path, line(t, "jane", Operator, "old"))
	clock, log := testkit.NewClock(time.Now()), &testkit.Log{}
	a, err := New(Config{TokensFile: path}, Deps{Now: clock.Now, Log: log.Logger()})
	require.NoError(t, err)
	expect := func(when, token string, want Role) {
		t.Helper()
		i, err := a.Check(request(t, ""), token)
		if i.Role != want || (want == "") == (err == nil) {
			t.Errorf("%s: token %s: %+v, %v, want %q", when, token, i, err, want)
		}
	}
	expect("at first", "old", Operator)
	write(t, path, line(t, "jane", Operator, "old")+line(t, "jane", Viewer, "new"))
	clock.Advance(lookEvery)
	expect("both", "old", Operator)
	expect("both", "new", Viewer)
	write(t, path, line(t, "jane", Operator, "new"))
	clock.Advance(lookEvery)
	expect("the new one", "old", "")
	expect("the new one", "new", Operator)

	for name, spoil := range map[string]func(){
		"not readable": func() { write(t, path, "- {name: "+keptToken) },
		"empty":        func() { write(t, path, "") },
		"gone":         func() { _ = os.Remove(path) },
	} {
		spoil()
		before := strings.Count(log.String(), "the previous ones stay valid")
		for range 3 {
			clock.Advance(lookEvery)
			expect(name, "new", Operator)
			expect(name, "old", "")
		}
		if n := strings.Count(log.String(), "the previous ones stay valid") - before; n != 1 {
			t.Errorf("%s: logged %d times", name, n)
		}
	}
	write(t, path, "[]")
	clock.Advance(lookEvery)
	expect("nobody", "new", "")
	if strings.Contains(log.String(), "CANARY") {
		t.Errorf("the log has a token: %s", log)
	}
}

func FuzzTokenFile(f *testing.F) {
	f.Add("- {name: jane, role: operator, sha256: " + hashOf("x") + "}\n")
	f.Add("[]")
	f.Add("- &a {name: a}\n- *a\n")
	f.Add("- {name: \"\\0\", role: viewer, sha256: " + strings.Repeat("A", 64) + "}")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := parseTokens([]byte(text))
		if err != nil {
			if len(list) > 0 {
				t.Errorf("tokens in spite of %v", err)
			}
			return
		}
		for i := range list {
			if err := list[i].check(); err != nil {
				t.Errorf("accepted a bad entry: %v", err)
			}
			if found := list.find(list[i].sum[:]); found != &list[i] {
				t.Error("an entry is not found by its hash")
			}
		}
	})
}
