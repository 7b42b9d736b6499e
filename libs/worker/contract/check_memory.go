package contract

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/kyma-project/keb/libs/event"
)

// Measured is an Instance whose memory can be measured.
type Measured interface {
	// Memory returns the memory that the worker uses, in bytes.
	Memory() (int64, error)
}

const (
	// memoryRounds is the number of rounds; the memory of a worker with a leak grows in each. memoryCommands is the number of commands of a
	// round. The memory of a worker without a leak stops growing after two or three rounds.
	memoryRounds   = 8
	memoryCommands = 200
	// memoryRound is the approximate duration of a round, and leastMemoryCommands the minimum number of commands of one.
	memoryRound         = 2 * time.Second
	leastMemoryCommands = 20
	// padding is the size of a command, and leastGrowth the part of each that counts as a leak.
	padding     = 64 << 10
	leastGrowth = 32 << 10
)

func checkMemory(ctx context.Context, k *kit) {
	m, ok := k.instance.(Measured)
	if !ok {
		k.skip("the memory of this worker cannot be measured: let the check start it as a program, on Linux")
		return
	}
	n, ok := k.memoryRound(ctx)
	if !ok {
		return
	}
	before, err := m.Memory()
	first, sent := before, 0
	for round := 0; err == nil; round++ {
		if round == memoryRounds {
			k.bad("its memory grew in each of %d rounds, from %d to %d MiB with %d commands: %d KiB for each. "+
				"If it waits long before it collects garbage, limit its memory, for example with GOMEMLIMIT or -Xmx",
				memoryRounds, first>>20, before>>20, sent, (before-first)>>10/int64(sent))
			return
		}
		if !k.pad(ctx, n) {
			return
		}
		sent += n
		var now int64
		if now, err = m.Memory(); err != nil {
			break
		}
		k.figure = fmt.Sprintf("%d MiB, after %d commands of %d KiB %d MiB", first>>20, sent, padding>>10, now>>20)
		if now-before < int64(n)*leastGrowth {
			return
		}
		before = now
	}
	k.skip("the memory of this worker cannot be measured: %v", err)
}

// memoryRound returns the number of commands of a round, estimated from the duration of a few.
func (k *kit) memoryRound(ctx context.Context) (n int, ok bool) {
	began := k.pulse.now()
	if !k.pad(ctx, leastMemoryCommands) {
		return 0, false
	}
	took := max(k.pulse.now()-began, time.Millisecond)
	n = min(memoryCommands, k.cfg.Commands, int(leastMemoryCommands*memoryRound/took))
	if n < leastMemoryCommands/2 {
		k.skip("%d commands take %s: too long to measure the memory", leastMemoryCommands, took.Round(time.Millisecond))
		return 0, false
	}
	return n, true
}

// pad sends large commands and waits for their answers.
func (k *kit) pad(ctx context.Context, n int) bool {
	blob, err := json.Marshal(map[string]string{"blob": strings.Repeat("0123456789abcdef", padding>>4)})
	if err != nil {
		k.bad("%v", err)
		return false
	}
	orders := make([]*order, n)
	for i := range orders {
		o, err := k.order(k.steps[0], func(c *event.StepExecute) {
			details := map[string]json.RawMessage{}
			_ = json.Unmarshal(c.Details, &details) // the kit's own
			details[foreign] = blob
			c.Details, _ = json.Marshal(details)
		})
		if err == nil {
			err = k.send(ctx, o)
		}
		if err != nil {
			k.bad("%v", err)
			return false
		}
		orders[i] = o
	}
	return k.allSettled(ctx, orders, "large commands")
}

// Memory returns the memory of the program and of its child processes.
func (p *process) Memory() (int64, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	var total int64
	for _, name := range stats {
		raw, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		if group, pages, err := groupMemory(string(raw)); err == nil && group == p.cmd.Process.Pid {
			total += pages * int64(os.Getpagesize())
		}
	}
	if total == 0 {
		return 0, errors.New("the operating system does not tell it in /proc")
	}
	return total, nil
}

// groupMemory returns the process group and the resident pages in a line of /proc/<pid>/stat. The name of the program, in parentheses, may
// contain any text.
func groupMemory(stat string) (group int, pages int64, err error) {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	const groupField, pagesField = 2, 21 // after the name
	if len(fields) <= pagesField {
		return 0, 0, fmt.Errorf("%d fields", len(fields))
	}
	if group, err = strconv.Atoi(fields[groupField]); err != nil {
		return 0, 0, err
	}
	pages, err = strconv.ParseInt(fields[pagesField], 10, 64)
	return group, pages, err
}
