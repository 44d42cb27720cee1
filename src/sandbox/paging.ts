/** The document's paginated list. */
export interface Page {
  docs: unknown[];
  totalDocs: number;
  limit: number;
  page: number;
  totalPages: number;
  hasNextPage: boolean;
  hasPrevPage: boolean;
}

/** One page of a list, counted from 1. A page past the end is empty. */
export function paged<T>(list: readonly T[], page: number, limit: number, show: (entry: T) => unknown): Page {
  const totalPages = Math.max(1, Math.ceil(list.length / limit));
  return {
    docs: list.slice((page - 1) * limit, page * limit).map(show),
    totalDocs: list.length,
    limit,
    page,
    totalPages,
    hasNextPage: page < totalPages,
    hasPrevPage: page > 1,
  };
}
