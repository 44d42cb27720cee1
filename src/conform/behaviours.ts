import type { Behaviour } from './behaviour.ts';
import { HARDSHIP_BEHAVIOURS } from './hardship-behaviours.ts';
import { ORDER_BEHAVIOURS } from './order-behaviours.ts';
import { READING_BEHAVIOURS } from './reading-behaviours.ts';

/** All behaviours, sorted by id. */
export const BEHAVIOURS: readonly Behaviour[] = [
  ...ORDER_BEHAVIOURS,
  ...HARDSHIP_BEHAVIOURS,
  ...READING_BEHAVIOURS,
].sort((a, b) => a.id - b.id);
