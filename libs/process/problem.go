package process

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
)

// Problem is a problem in a file.
type Problem struct {
	File string
	// Line starts at 1; 0 means the whole file.
	Line    int
	Message string
}

// Error returns "file:line: message".
func (p *Problem) Error() string {
	if p.Line == 0 {
		return p.File + ": " + p.Message
	}
	return fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.Message)
}

// position is a position in a file.
type position struct {
	file string
	line int
}

// String returns "file:line".
func (p position) String() string { return fmt.Sprintf("%s:%d", p.file, p.line) }

// problems collects all problems, so that they are reported together.
type problems struct {
	found []*Problem
}

func (p *problems) add(at position, format string, args ...any) {
	p.found = append(p.found, &Problem{File: at.file, Line: at.line, Message: fmt.Sprintf(format, args...)})
}

// err joins the problems, sorted by file and line; nil if there are none.
func (p *problems) err() error {
	slices.SortStableFunc(p.found, func(a, b *Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	errs := make([]error, len(p.found))
	for i, f := range p.found {
		errs[i] = f
	}
	return errors.Join(errs...)
}

// Named sets the prefix of a folder's files in the errors of Load, for example the folder as the user wrote it.
func Named(name string, files fs.FS) fs.FS { return namedFS{FS: files, name: name} }

type namedFS struct {
	fs.FS
	name string
}
