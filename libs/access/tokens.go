package access

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

const (
	maxTokensFile = 1 << 20
	maxName       = 100
	// tokenBytes is the size of a token's random part, which cannot be guessed.
	tokenBytes  = 32
	tokenPrefix = "keb_"
	// lookEvery is the minimum interval between two checks of the token file.
	lookEvery = time.Second
)

// NewToken returns a random static token, and its hash for the token file.
func NewToken() (token, hash string) {
	random := make([]byte, tokenBytes)
	_, _ = rand.Read(random) // crypto/rand.Read never fails: it ends the program instead
	token = tokenPrefix + base64.RawURLEncoding.EncodeToString(random)
	return token, hashOf(token)
}

func hashOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

func sumOf(hash string) ([]byte, error) {
	sum, err := hex.DecodeString(hash)
	if err != nil || len(sum) != sha256.Size {
		return nil, errors.New("not a SHA-256")
	}
	return sum, nil
}

// TokenLine returns an entry of the token file. The error describes an invalid name or role.
func TokenLine(name string, role Role, hash string) (string, error) {
	e := entry{name: name, role: role}
	if err := e.check(); err != nil {
		return "", err
	}
	if !plainName.MatchString(name) {
		quoted, err := json.Marshal(name) // every JSON text is YAML
		if err != nil {
			return "", fmt.Errorf("name: %w", err)
		}
		name = string(quoted)
	}
	return fmt.Sprintf("- {name: %s, role: %s, sha256: %s}", name, role, hash), nil
}

// plainName matches names that need no quotes in YAML.
var plainName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.@-]*$`)

// entry is one static token.
type entry struct {
	name string
	role Role
	sum  [sha256.Size]byte
}

func (e *entry) check() error {
	switch {
	case e.name == "":
		return errors.New("name: is missing")
	case len(e.name) > maxName || !utf8.ValidString(e.name) || strings.TrimSpace(e.name) != e.name ||
		strings.ContainsFunc(e.name, func(r rune) bool { return !unicode.IsPrint(r) }):
		return fmt.Errorf("name: must have at most %d bytes, all printable, without spaces at its ends", maxName)
	case !slices.Contains(Roles(), e.role):
		return fmt.Errorf("role: allowed are %s, %s and %s", Viewer, Operator, Sender)
	}
	return nil
}

// entries is the content of a token file.
type entries []entry

// find compares a hash with all entries, so that the duration reveals nothing about them.
func (e entries) find(sum []byte) *entry {
	found := -1
	for i := range e {
		if subtle.ConstantTimeCompare(e[i].sum[:], sum) == 1 {
			found = i
		}
	}
	if found < 0 {
		return nil
	}
	return &e[found]
}

var yamlLine = regexp.MustCompile(`line \d+`)

// parseTokens parses a token file. Its errors contain the line but no value, which may be a misplaced token.
func parseTokens(text []byte) (entries, error) {
	var document, more yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF):
		return nil, errors.New("the file is empty: want a list of {name, role, sha256}, or [] for no token at all")
	case err != nil:
		where := yamlLine.FindString(err.Error())
		if where == "" {
			where = "somewhere"
		}
		return nil, fmt.Errorf("%s: not readable as YAML", where)
	}
	if err := decoder.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, errors.New("want exactly one YAML document")
	}
	if len(document.Content) != 1 || document.Content[0].Kind != yaml.SequenceNode {
		return nil, errors.New("want a list of {name, role, sha256}")
	}
	list := make(entries, 0, len(document.Content[0].Content))
	lines := map[[sha256.Size]byte]int{}
	for _, node := range document.Content[0].Content {
		e, err := parseEntry(node)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", node.Line, err)
		}
		if first, twice := lines[e.sum]; twice {
			return nil, fmt.Errorf("line %d: sha256: is the same as in line %d", node.Line, first)
		}
		lines[e.sum] = node.Line
		list = append(list, e)
	}
	return list, nil
}

func parseEntry(node *yaml.Node) (e entry, err error) {
	const want = "want {name: ..., role: viewer or operator, sha256: hex of the SHA-256 of the token}"
	if node.Kind != yaml.MappingNode {
		return e, errors.New(want)
	}
	values := map[string]string{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		if key.Kind != yaml.ScalarNode || value.Kind != yaml.ScalarNode {
			return e, errors.New(want)
		}
		switch key.Value {
		case "name", "role", "sha256":
		default:
			return e, errors.New("unknown key: " + want)
		}
		if _, twice := values[key.Value]; twice {
			return e, fmt.Errorf("%s: is duplicated", key.Value)
		}
		values[key.Value] = value.Value
	}
	e.name, e.role = values["name"], Role(values["role"])
	if err := e.check(); err != nil {
		return e, err
	}
	sum, err := sumOf(values["sha256"])
	if err != nil {
		return e, fmt.Errorf("sha256: want %d hexadecimal digits: the SHA-256 of the token, not the token", 2*sha256.Size)
	}
	copy(e.sum[:], sum)
	return e, nil
}

// readTokens reads the file. Its errors omit the path, which the caller adds.
func readTokens(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("the file cannot be read: %w", errors.Unwrap(err))
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxTokensFile+1))
	if err != nil {
		return nil, fmt.Errorf("the file cannot be read: %w", errors.Unwrap(err))
	}
	if len(text) > maxTokensFile {
		return nil, fmt.Errorf("the file has more than %d bytes", maxTokensFile)
	}
	return text, nil
}

func loadTokens(path string) (entries, error) {
	text, err := readTokens(path)
	if err != nil {
		return nil, err
	}
	return parseTokens(text)
}

// tokenFile is a token file that is read again when it changes. Requests trigger the check, at most once a second.
type tokenFile struct {
	path string
	now  func() time.Time
	log  *slog.Logger

	mu      sync.Mutex
	looked  time.Time
	content [sha256.Size]byte
	list    entries
	// complaint is the last logged error, so that each is logged once.
	complaint string
}

func openTokens(path string, now func() time.Time, log *slog.Logger) (*tokenFile, error) {
	text, err := readTokens(path)
	if err != nil {
		return nil, err
	}
	list, err := parseTokens(text)
	if err != nil {
		return nil, err
	}
	return &tokenFile{path: path, now: now, log: log, looked: now(), content: sha256.Sum256(text), list: list}, nil
}

// current returns the newest readable content.
func (f *tokenFile) current() entries {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := f.now(); now.Sub(f.looked) >= lookEvery || now.Before(f.looked) {
		f.looked = now
		f.look()
	}
	return f.list
}

func (f *tokenFile) look() {
	text, err := readTokens(f.path)
	if err != nil {
		f.complain(err)
		return
	}
	sum := sha256.Sum256(text)
	if sum == f.content {
		f.complaint = ""
		return
	}
	list, err := parseTokens(text)
	if err != nil {
		f.complain(err)
		return
	}
	f.content, f.list, f.complaint = sum, list, ""
	f.log.Info("access tokens read again", "tokens", len(list))
}

func (f *tokenFile) complain(err error) {
	if f.complaint != err.Error() {
		f.complaint = err.Error()
		f.log.Error("access tokens not read, the previous ones stay valid", "file", f.path, "err", err)
	}
}
