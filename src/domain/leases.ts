/** Named leases in state.db with fencing numbers, for work that only one process may do at a time. */
export interface Leases {
  /** The fence of the lease, or undefined while another process has it. */
  acquire(name: string, holdMs: number): number | undefined;
  /** Keeps a lease longer; false when another process has overtaken it. */
  renew(name: string, fence: number, holdMs: number): boolean;
  release(name: string, fence: number): void;
}
