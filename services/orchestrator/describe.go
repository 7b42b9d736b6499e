package orchestrator

// BuiltInSteps describes the steps that the orchestrator runs itself inside a transition, by name.
func BuiltInSteps() map[string]string {
	const turn = "Starts the operation when no other one of the instance is in progress"
	return map[string]string{
		"Starting":                       turn + ", with the data that earlier operations have saved.",
		"Init_Step":                      turn + ", with the data that the last operation has saved and the steps that it has completed.",
		"Update_Kyma_Initialization":     turn + ".",
		"Upgrade_Kyma_Initialisation":    turn + ".",
		"Upgrade_Cluster_Initialisation": turn + ".",
	}
}
