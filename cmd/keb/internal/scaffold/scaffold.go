// Package scaffold creates the project of a new step worker. The files of a project are those of the folders common and golang, python or
// node, with the name of the worker in place of my-worker. Each of these folders is a worker that can be built and tested as it is.
package scaffold

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Placeholders in names and contents of files.
const (
	placeholder     = "my-worker"
	stepPlaceholder = "My_Worker"
)

// Patterns name no folder of sources as a whole, which may contain what tools have left there.
//
//go:embed common/*.* common/overlay
//go:embed golang/*.* golang/Dockerfile golang/.dockerignore golang/.gitignore golang/.github
//go:embed python/*.* python/Dockerfile python/.dockerignore python/.gitignore python/.github
//go:embed node/*.* node/Dockerfile node/.dockerignore node/.gitignore node/.npmrc node/.github
var files embed.FS

// libsModule is the module with the library for workers in Go.
const libsModule = "github.com/kyma-project/keb/libs"

// language is how a project gets its library, and what a user does with it.
type language struct {
	folder string
	// source is the folder of the library in a clone of KEB. The listed parts of it are copied into the project; without parts it is not copied.
	source string
	parts  []string
	// test installs, builds and tests the project; worker starts the worker.
	test, worker string
}

func languages() map[string]language {
	return map[string]language{
		"go": {folder: "golang", source: "libs", test: "go mod tidy && go test ./... && go build -o bin/my-worker .", worker: "bin/my-worker"},
		"node": {
			folder: "node", source: "clients/node", parts: []string{"package.json", "README.md", "src"},
			test: "npm install && npm test", worker: "node worker.mjs",
		},
		"python": {
			folder: "python", source: "clients/python", parts: []string{"pyproject.toml", "README.md", "keb_worker"},
			test:   "python3 -m venv .venv && .venv/bin/pip install -r requirements.txt && .venv/bin/python -m unittest",
			worker: ".venv/bin/python worker.py",
		},
	}
}

// Languages returns the values of Project.Language.
func Languages() []string { return slices.Sorted(maps.Keys(languages())) }

// Project describes a project to create.
type Project struct {
	// Name is the name of the worker, and of the folder in Parent.
	Name, Parent, Language string
	// Clone is the folder of a clone of KEB that has the library. Go needs none.
	Clone string
	// LibraryVersion is the version of the library for Go without a clone. If it is empty, the user must choose one.
	LibraryVersion string
}

// names are labels of Kubernetes that are also worker names of the bus.
var names = regexp.MustCompile(`^[a-z]([a-z0-9-]{0,30}[a-z0-9])?$`)

// Steps returns the names of the steps of a worker with that name.
func Steps(name string) []string {
	words := strings.Split(name, "-")
	for i, word := range words {
		if word != "" {
			words[i] = strings.ToUpper(word[:1]) + word[1:]
		}
	}
	prefix := strings.Join(words, "_")
	return []string{prefix + "_Create", prefix + "_Delete"}
}

// Check validates the project, without looking at its folder. The names in errors are those of the flags of keb worker init.
func (p Project) Check() error {
	lang, known := languages()[p.Language]
	switch {
	case !known:
		return fmt.Errorf("--lang %q: must be one of %s", p.Language, strings.Join(Languages(), ", "))
	case !names.MatchString(p.Name):
		return fmt.Errorf("name %q: use lower-case letters, digits and \"-\", at most 32 of them; "+
			"begin with a letter, and end with a letter or a digit, as in audit-log", p.Name)
	case p.Clone == "" && len(lang.parts) > 0:
		return fmt.Errorf("--keb is missing: the library for %s is in no package registry yet; give the folder of a clone of KEB, which has it in %s",
			p.Language, lang.source)
	case p.Clone == "":
		return nil
	}
	if info, err := os.Stat(filepath.Join(p.Clone, lang.source)); err != nil || !info.IsDir() {
		return fmt.Errorf("--keb %q: must be the folder of a clone of KEB; it has no folder %s", p.Clone, lang.source)
	}
	return nil
}

// Create creates the folder of the project, which must not exist. After an error there is no folder.
func Create(p Project) (err error) {
	if err := p.Check(); err != nil {
		return err
	}
	lang := languages()[p.Language]
	folder := filepath.Join(p.Parent, p.Name)
	if _, err := os.Lstat(folder); err == nil {
		return fmt.Errorf("%s exists already; choose another name, or remove it", folder)
	}
	// The folder gets its name when it is complete.
	work, err := os.MkdirTemp(p.Parent, "."+p.Name+"-")
	if err != nil {
		return fmt.Errorf("create a folder: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(work))
		}
	}()
	if err := os.Chmod(work, 0o755); err != nil {
		return fmt.Errorf("create a folder: %w", err)
	}
	if err := p.write(work, lang); err != nil {
		return err
	}
	if err := os.Rename(work, folder); err != nil {
		return fmt.Errorf("name the folder of the project: %w", err)
	}
	return nil
}

// write writes all files of the project.
func (p Project) write(folder string, lang language) error {
	for _, from := range []string{"common", lang.folder} {
		sub, err := fs.Sub(files, from)
		if err != nil {
			return fmt.Errorf("templates of %s: %w", from, err)
		}
		if err := p.copy(sub, ".", folder, p.fill); err != nil {
			return err
		}
	}
	if len(lang.parts) == 0 {
		return p.writeGoMod(folder)
	}
	clone := os.DirFS(filepath.Join(p.Clone, lang.source))
	for _, part := range lang.parts {
		if err := p.copy(clone, part, filepath.Join(folder, "vendor", "keb-worker"), func(text string) string { return text }); err != nil {
			return fmt.Errorf("copy the library from %s: %w", p.Clone, err)
		}
	}
	return nil
}

// fill puts the name of the worker and of its steps into a text.
func (p Project) fill(text string) string {
	prefix := strings.TrimSuffix(Steps(p.Name)[0], "_Create")
	return strings.NewReplacer(placeholder, p.Name, stepPlaceholder, prefix).Replace(text)
}

// copy copies the files below a path of a file system into a folder.
func (p Project) copy(from fs.FS, start, folder string, change func(string) string) error {
	return fs.WalkDir(from, start, func(name string, entry fs.DirEntry, err error) error {
		switch base := path.Base(name); {
		case err != nil:
			return err
		case entry.IsDir() && (base == "__pycache__" || base == "node_modules"):
			return fs.SkipDir
		case !entry.Type().IsRegular() || strings.HasSuffix(base, ".txt") && base != "requirements.txt":
			return nil
		}
		content, err := fs.ReadFile(from, name)
		if err != nil {
			return err
		}
		return writeFile(filepath.Join(folder, filepath.FromSlash(change(name))), change(string(content)))
	})
}

// writeGoMod writes go.mod. The template has another name: a folder with a go.mod is a module of its own and cannot be embedded.
func (p Project) writeGoMod(folder string) error {
	template, err := files.ReadFile("golang/go.mod.txt")
	if err != nil {
		return fmt.Errorf("template of go.mod: %w", err)
	}
	text := p.fill(string(template))
	switch {
	case p.Clone != "":
		libs, err := filepath.Abs(filepath.Join(p.Clone, "libs"))
		if err != nil {
			return fmt.Errorf("find the clone of KEB: %w", err)
		}
		text += fmt.Sprintf("\nrequire %[1]s v0.0.0\n\nreplace %[1]s => %[2]s\n", libsModule, strconv.Quote(filepath.ToSlash(libs)))
	case p.LibraryVersion != "":
		text += fmt.Sprintf("\nrequire %s %s\n", libsModule, p.LibraryVersion)
	}
	return writeFile(filepath.Join(folder, "go.mod"), text)
}

func writeFile(name, text string) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return fmt.Errorf("create a folder: %w", err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		return fmt.Errorf("write a file of the project: %w", err)
	}
	return nil
}

// Next returns the commands that test, run and check the new project, in its folder.
func (p Project) Next() []string {
	lang := languages()[p.Language]
	test := p.fill(lang.test)
	switch {
	case len(lang.parts) > 0:
	case p.Clone != "":
		test = strings.Replace(test, "go mod tidy", "go mod tidy && go mod vendor", 1)
	case p.LibraryVersion == "":
		test = "go get " + libsModule + "@main && " + test
	}
	worker := p.fill(lang.worker)
	return []string{
		"cd " + p.Name + " && " + test,
		"keb up --fast --overlays overlay   # and in a second terminal: " + worker,
		"keb worker check --worker " + p.Name + " --case cases.yaml -- " + worker,
	}
}
