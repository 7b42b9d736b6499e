package contract

import (
	"sync"

	"github.com/google/uuid"
)

// instancesPerStep is the number of instances that the commands of a step use in turn. A check uses few, because the objects that a step
// creates for an instance stay in the external system unless the worker removes them.
const instancesPerStep = 16

// instances holds the instances of the commands.
type instances struct {
	mu     sync.Mutex
	byStep map[string][]string
	turn   map[string]int
}

func newInstances() *instances {
	return &instances{byStep: map[string][]string{}, turn: map[string]int{}}
}

// next returns the id of the instance for the next command of a step.
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
