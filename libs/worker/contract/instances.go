package contract

import (
	"sync"

	"github.com/google/uuid"
)

// instancesPerStep is the number of instances that the commands of a step are about, in turn. What a step makes for an instance in its
// external system stays there unless the worker removes it, so a check uses few of them.
const instancesPerStep = 16

// instances are the instances that commands are about.
type instances struct {
	mu     sync.Mutex
	byStep map[string][]string
	turn   map[string]int
}

func newInstances() *instances {
	return &instances{byStep: map[string][]string{}, turn: map[string]int{}}
}

// next returns the id of the instance of the next command of a step.
func (i *instances) next(step string) string {
	i.mu.Lock()
	defer i.mu.Unlock()
	n := i.turn[step]
	i.turn[step]++
	if n < instancesPerStep {
		i.byStep[step] = append(i.byStep[step], uuid.NewString())
	}
	return i.byStep[step][n%instancesPerStep]
}
