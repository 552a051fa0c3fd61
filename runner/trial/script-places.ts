/** Where a script that is the agent is mounted. */
export const scriptTarget = '/closedbook-script'
export const solutionTarget = '/solution'
/** Where a Harbor task's solution is mounted, to be copied to a place that its script may write to. */
export const solutionSource = '/closedbook-solution'

/** Mounts of ours in the agent's container, which are there before it changes anything. */
export const ownPlaces = [scriptTarget, solutionSource]
