import { PLAIN_STRATEGIES } from './plain-strategies.ts';
import type { NamedStrategy } from './strategy.ts';
import { TILLSYNC_STRATEGIES } from './tillsync-strategy.ts';

/** The strategy with full knowledge, which plays without calls and which no other can surpass. */
export const OPTIMUM: NamedStrategy = {
  name: 'optimum',
  about: 'what the POS has less what it has not booked, without delay: no information gives more',
  create: () => ({}),
};

export const BUILT_IN_STRATEGIES: readonly NamedStrategy[] = [
  OPTIMUM,
  ...PLAIN_STRATEGIES,
  ...TILLSYNC_STRATEGIES,
];
